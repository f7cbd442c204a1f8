"""The critic's loop: which value stands in which column, what one update does, and that splitting changes nothing."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType

from ragen_trl.batching.batch import collate
from ragen_trl.credit.critic import Critic
from ragen_trl.credit.critic_networks import CriticError
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.critics import (
    GENTLE,
    PAD,
    episodes,
    lesson,
    lora_policy,
    make_critic,
    no_bootstrap,
    weights,
)
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.trainers import small_model

POLICIES = {"model": small_model, "adapter": lambda: lora_policy(warm=True)}


@pytest.fixture(params=POLICIES)
def build(request: pytest.FixtureRequest) -> Any:
    """Makes a policy, the same each time."""
    return POLICIES[request.param]


def test_a_column_holds_what_the_tokens_before_it_are_worth(build: Any) -> None:
    critic, rows = make_critic(build()), episodes(3)
    values, after = critic.values(rows, [True, False, True])
    with critic.network.active(training=False), torch.no_grad():

        def worth(tokens: tuple[int, ...]) -> float:
            ids = torch.tensor([tokens])
            return critic.network(ids, torch.ones_like(ids))[0, -1].item()

        for row, trajectory in enumerate(rows):
            tokens = trajectory.token_ids
            expected = [0.0, *(worth(tokens[:column]) for column in range(1, len(tokens)))]
            assert values[row, : len(tokens)].tolist() == pytest.approx(expected, abs=1e-5)
            assert not values[row, len(tokens) :].any()
            beyond = worth(tokens + trajectory.next_prompt_ids) if row != 1 else 0.0
            assert after[row].item() == pytest.approx(beyond, abs=1e-5)
    assert values.std() > 0.05  # the columns do differ
    assert values.dtype == torch.float32


def test_a_value_is_that_of_what_was_read_where_a_context_was_rebuilt(build: Any) -> None:
    """The second and the fourth turn, and the prompt after the last, read other tokens than those before them."""
    critic = make_critic(build())
    turns = [turn for row in episodes(9, seed=5) for turn in row.turns][:4]
    rebuilt = [None, (7, 8, 9, 10), None, (5, 6)]
    turns = [replace(turn, context_ids=ids) for turn, ids in zip(turns, rebuilt, strict=True)]
    whole = Trajectory(tuple(turns), 0, truncated=True, next_prompt_ids=(11, 12), next_context_ids=(13, 14))
    (plain,) = episodes(1)
    values, after = critic.values([whole, plain], [True, True])
    with critic.network.active(training=False), torch.no_grad():
        column, read = 0, ()
        for turn in whole.turns:
            read = read if turn.context_ids is None else turn.context_ids
            for token in (*turn.prompt_ids, *turn.reply_ids):
                if read:
                    ids = torch.tensor([read])
                    expected = critic.network(ids, torch.ones_like(ids))[0, -1].item()
                    assert values[0, column].item() == pytest.approx(expected, abs=1e-5)
                read, column = (*read, token), column + 1
        ids = torch.tensor([[13, 14, 11, 12]])
        assert after[0].item() == pytest.approx(critic.network(ids, torch.ones_like(ids))[0, -1].item(), abs=1e-5)
    assert column == len(whole.token_ids)
    torch.testing.assert_close(after[1:], critic.values([plain], [True])[1])


def test_a_value_does_not_know_the_tokens_at_and_behind_its_column() -> None:
    critic, (row,) = make_critic(small_model()), episodes(1, seed=3)
    reply = row.turns[0].reply_ids
    other = replace(row, turns=(replace(row.turns[0], reply_ids=tuple(token - 1 for token in reply)), *row.turns[1:]))
    start = len(row.turns[0].prompt_ids)
    first, second = (critic.values([one], [True]) for one in (row, other))
    torch.testing.assert_close(first[0][:, : start + 1], second[0][:, : start + 1], rtol=0, atol=1e-6)
    assert (first[0][:, start + 1 :] - second[0][:, start + 1 :]).abs().min() > 1e-4
    assert (first[1] - second[1]).abs() > 1e-4


def test_values_depend_neither_on_the_batch_nor_on_its_padding(build: Any) -> None:
    rows = episodes(7)
    critic = make_critic(build(), batch_size=7)
    bootstrap = [index % 2 == 0 for index in range(7)]
    values, after = critic.values(rows, bootstrap)
    for index, row in enumerate(rows):
        alone, alone_after = critic.values([row], [bootstrap[index]])
        torch.testing.assert_close(values[index, : alone.shape[1]], alone[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(after[index], alone_after[0], rtol=0, atol=1e-5)
    turned, turned_after = make_critic(build(), batch_size=2).values(rows[::-1], bootstrap[::-1])
    torch.testing.assert_close(turned.flip(0), values, rtol=0, atol=1e-5)
    torch.testing.assert_close(turned_after.flip(0), after, rtol=0, atol=1e-5)


def test_a_new_critic_values_everything_at_zero(build: Any) -> None:
    values, after = make_critic(build(), awake=False).values(episodes(2), [True, True])
    assert not values.any()
    assert not after.any()


def test_one_bootstrap_per_trajectory_is_asked_for() -> None:
    with pytest.raises(ValueError, match="shorter"):
        make_critic(small_model()).values(episodes(2), [True])


def test_metrics_are_those_of_hand_worked_numbers() -> None:
    """A new critic says 0: the loss is half the mean square of the returns 1, 3, the bias has gradient -2."""
    (row,) = episodes(1, seed=3)
    mask, targets, old = (torch.zeros(1, len(row.token_ids)) for _ in range(3))
    mask[0, -2:] = 1
    targets[0, -2:] = torch.tensor([1.0, 3.0])
    old[0, -2:] = torch.tensor([1.0, 2.0])
    critic = make_critic(small_model(), awake=False, learning_rate=0.0, max_grad_norm=math.inf)
    with torch.no_grad():
        critic.network.backbone.norm.weight.zero_()  # hidden states are 0, so the bias alone has a gradient
    metrics = critic.update([row], targets, mask, old, clip=None)
    assert metrics == pytest.approx(
        {
            "critic/value_loss": 0.5 * (1 + 9) / 2,
            "critic/clip_fraction": 0.0,
            "critic/grad_norm": 2.0,
            "critic/explained_variance": 1 - 0.25 / 1.0,
            "critic/value_mean": 1.5,
            "critic/return_mean": 2.0,
            "critic/learning_rate": 0.0,
        }
    )


def test_a_value_beyond_the_clip_gets_no_gradient() -> None:
    rows = episodes(4)
    critic = make_critic(small_model())
    values, _ = critic.values(rows, no_bootstrap(rows))
    mask = collate(rows, PAD)["action_mask"]
    before = weights(critic)
    metrics = critic.update(rows, values + 4, mask, values - 1, clip=0.5)  # moved by 1 towards its return, 0.5 allowed
    assert metrics["critic/clip_fraction"] == 1.0
    assert metrics["critic/grad_norm"] == 0.0
    assert metrics["critic/value_loss"] == pytest.approx(0.5 * 4.5**2, rel=1e-4)
    assert all(torch.equal(old, new) for old, new in zip(before, weights(critic), strict=True))
    assert critic.update(rows, values + 4, mask, values - 1, clip=1.5)["critic/clip_fraction"] == 0.0


def test_explained_variance_of_equal_returns_is_zero() -> None:
    rows = episodes(3)
    given = lesson(rows)
    given["targets"] = torch.full_like(given["targets"], 0.1)
    assert make_critic(small_model()).update(rows, **given, clip=0.5)["critic/explained_variance"] == 0.0


def test_the_critic_learns_what_states_are_worth(build: Any) -> None:
    """The return follows from one token of the first prompt: a lucky and an unlucky one."""
    rows = [
        replace(row, turns=(replace(row.turns[0], prompt_ids=(10 + index % 2, 20)), *row.turns[1:]))
        for index, row in enumerate(episodes(12))
    ]
    mask = collate(rows, PAD)["action_mask"]
    targets = torch.tensor([[2.0 * (index % 2)] for index in range(12)]).expand_as(mask)
    critic = make_critic(build(), awake=False, batch_size=12, learning_rate=0.02)
    explained = []
    for step in range(25):
        values, _ = critic.values(rows, no_bootstrap(rows))
        metrics = critic.update(rows, targets, mask, values, clip=0.5, minibatches=2, seed=step)
        explained.append(metrics["critic/explained_variance"])
    assert explained[0] == pytest.approx(0.0, abs=1e-6)
    assert explained[-1] > 0.9


def test_many_small_passes_take_the_step_of_one(build: Any) -> None:
    rows = episodes(8)
    whole = make_critic(build(), batch_size=8, max_grad_norm=0.1, **GENTLE)
    metrics = whole.update(rows, **lesson(rows), clip=0.2)
    small = make_critic(build(), batch_size=1, max_grad_norm=0.1, **GENTLE)
    assert small.update(rows, **lesson(rows), clip=0.2) == pytest.approx(metrics, rel=1e-4)
    for one, other in zip(weights(whole), weights(small), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def with_another_end(row: Trajectory) -> Trajectory:
    """The same episode up to its last reply, which differs in its last token."""
    last = row.turns[-1]
    return replace(row, turns=(*row.turns[:-1], replace(last, reply_ids=(*last.reply_ids[:-1], 5))))


def test_rows_that_share_their_beginning_have_the_values_and_the_step_of_single_rows(build: Any) -> None:
    rows = [copy for row in episodes(4) for copy in (row, with_another_end(row))]
    plain, packed = (make_critic(build(), batch_size=8, shares_prefixes=shares, **GENTLE) for shares in (False, True))
    bootstrap = [index % 3 == 0 for index in range(8)]
    for one, other in zip(plain.values(rows, bootstrap), packed.values(rows, bootstrap), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    expected = plain.update(rows, **lesson(rows), clip=0.2)
    assert packed.update(rows, **lesson(rows), clip=0.2) == pytest.approx(expected, rel=1e-4)
    for one, other in zip(weights(plain), weights(packed), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_an_update_takes_a_step_per_minibatch_and_epoch_in_an_order_of_the_seed() -> None:
    rows = episodes(6)

    def steps_and_bias(seed: int) -> tuple[int, float]:
        critic = make_critic(small_model())
        critic.update(rows, **lesson(rows), clip=None, minibatches=3, epochs=2, seed=seed)
        state = critic._optimizer.state[critic.network.head.bias]
        return int(state["step"]), critic.network.head.bias.item()

    assert steps_and_bias(0) == steps_and_bias(0)
    assert steps_and_bias(0)[0] == 6
    assert steps_and_bias(0)[1] != steps_and_bias(1)[1]


def test_what_stands_off_the_mask_changes_nothing(build: Any) -> None:
    """Neither at environment tokens, nor in rows that are dropped."""
    rows = episodes(4)
    given = lesson(rows)
    given["mask"][3] = 0
    spoilt = {key: given[key].masked_fill(given["mask"] == 0, math.nan) for key in ("targets", "old_values")}
    results = []
    for targets, old_values in ((given["targets"], given["old_values"]), tuple(spoilt.values())):
        critic = make_critic(build())
        results.append((critic.update(rows, targets, given["mask"], old_values, clip=0.5), weights(critic)))
    kept = make_critic(build())
    width = max(len(row.token_ids) for row in rows[:3])
    kept.update(rows[:3], **{key: value[:3, :width] for key, value in given.items()}, clip=0.5)
    assert results[0][0] == results[1][0]
    for first, second, third in zip(results[0][1], results[1][1], weights(kept), strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, third, rtol=1e-4, atol=1e-6)


def test_nothing_to_learn_changes_nothing() -> None:
    rows = episodes(2)
    given = {key: torch.zeros_like(value) for key, value in lesson(rows).items()}
    critic = make_critic(small_model(), weight_decay=0.1)
    before = weights(critic)
    assert critic.update(rows, **given, clip=0.5) == {}
    assert critic.update([], *(torch.zeros(0, 0) for _ in range(3)), clip=0.5) == {}
    assert all(torch.equal(old, new) for old, new in zip(before, weights(critic), strict=True))
    assert critic.values([], [])[0].shape == (0, 0)


def test_a_wrong_shape_and_a_return_that_is_not_finite_are_errors() -> None:
    rows = episodes(2)
    given = lesson(rows)
    critic = make_critic(small_model())
    with pytest.raises(ValueError, match=r"targets has shape \(2, 1\)"):
        critic.update(rows, **{**given, "targets": given["targets"][:, :1]}, clip=0.5)
    given["targets"] = given["targets"].masked_fill(given["mask"] == 1, math.inf)
    with pytest.raises(ValueError, match="targets holds inf"):
        critic.update(rows, **given, clip=0.5)


def stand_in(**changes: Any) -> Any:
    """An accelerator of one process, so that its precision does not outlive the test."""
    fixed: dict[str, Any] = {
        "distributed_type": DistributedType.NO,
        "device": torch.device("cpu"),
        "num_processes": 1,
        "is_main_process": True,
        "reduce": lambda value, reduction: value,
    }
    return SimpleNamespace(**{**fixed, **changes})


def test_the_head_computes_in_float32_under_mixed_precision() -> None:
    """fp16 is not used at all: its loss scaling belongs to the policy's optimizer."""
    rows = episodes(3)
    bf16 = stand_in(mixed_precision="bf16", autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    full, _ = make_critic(small_model()).values(rows, no_bootstrap(rows))
    values, _ = make_critic(small_model(), accelerator=bf16).values(rows, no_bootstrap(rows))
    assert not torch.equal(values, full)
    torch.testing.assert_close(values, full, rtol=0, atol=0.1)
    assert not torch.equal(values, values.bfloat16().float())
    fp16 = stand_in(mixed_precision="fp16", autocast=lambda: pytest.fail("autocast under fp16"))
    assert torch.equal(make_critic(small_model(), accelerator=fp16).values(rows, no_bootstrap(rows))[0], full)


def test_a_launch_with_megatron_is_refused() -> None:
    with pytest.raises(CriticError, match="MEGATRON_LM; launch with FSDP2 or DeepSpeed"):
        Critic(
            small_model(),
            stand_in(distributed_type=DistributedType.MEGATRON_LM),
            PAD,
            batch_size=1,
            learning_rate=1e-5,
        )


def test_two_processes_take_the_step_of_one_and_the_policy_stays_in_step(tmp_path: Path) -> None:
    """Shares of 5 and 3 episodes, and of 8 and none; what is compared: ``critic_two_ranks.py``."""
    on_two_processes("tests.support.ragen_trl.critic_two_ranks", tmp_path)
    rows = episodes(8)
    for kind, build in POLICIES.items():
        single = make_critic(build(), max_grad_norm=0.1, **GENTLE)
        metrics = single.update(rows, **lesson(rows), clip=0.2)
        for share in (5, 8):
            double = torch.load(tmp_path / f"{kind}-{share}.pt")
            assert double["metrics"] == pytest.approx(metrics, rel=1e-4), (kind, share)
            for found, expected in zip(double["weights"], weights(single), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
