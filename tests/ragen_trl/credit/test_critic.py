"""The critic: which value stands in which column, what an update does, and that the policy beside it stays the same."""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from peft import PeftModel

from ragen_trl.batching.batch import trajectory_batch, turn_columns, whole_rows
from ragen_trl.credit.critic import Critic
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.fake_vllm import LORA
from tests.support.ragen_trl.trainers import TOKENIZER, small_model, with_adapter

PAD = TOKENIZER.pad_token_id
OPTIONS: dict[str, Any] = {
    **dict(per_device_train_batch_size=4, critic_learning_rate=0.01, max_grad_norm=1.0, weight_decay=0.0),
    **dict(adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, gradient_checkpointing=False),
}
# Adam with a large ε: a step in proportion to the gradient.
GENTLE: dict[str, Any] = {"critic_learning_rate": 0.1, "adam_epsilon": 1.0}


def episode(random: np.random.Generator, num_turns: int) -> Trajectory:
    """Turns of 2 to 5 environment tokens and 1 to 4 sampled ones, cut off before another turn of 3."""

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(random.integers(3, len(TOKENIZER), size=random.integers(low, high)).tolist())

    turns = tuple(Turn(tokens(2, 6), tokens(1, 5), (), "?", "!", 0.0) for _ in range(num_turns))
    return Trajectory(turns, seed=0, truncated=True, limit="turns", next_prompt_ids=tokens(3, 4))


def episodes(count: int, seed: int = 0) -> list[Trajectory]:
    """Episodes of one to three turns."""
    random = np.random.default_rng(seed)
    return [episode(random, int(random.integers(1, 4))) for _ in range(count)]


def lora_policy(**settings: Any) -> PeftModel:
    """The small model with an adapter whose matrices are all non-zero."""
    return with_adapter(0.3, **{**LORA, **settings})


def make_critic(policy: Any, awake: bool = True, **settings: Any) -> Critic:
    """A critic of this policy; an ``awake`` one has a head that is not zero."""
    shares = settings.pop("shares_prefixes", False)
    args = SimpleNamespace(**{**OPTIONS, **settings})  # no configuration, which would reset the state of Accelerate
    critic = Critic(policy, Accelerator(cpu=True), args, PAD, shares_prefixes=shares)
    if awake:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            critic.network.head.weight.normal_(std=0.3, generator=generator)
            critic.network.head.bias.fill_(0.2)
    return critic


def lesson(rows: Sequence[Trajectory], seed: int = 0) -> dict[str, torch.Tensor]:
    """Targets, mask and old values for ``update``: random numbers at sampled tokens."""
    mask = (turn_columns(rows) >= 0).int()
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(mask.shape, generator=generator) * mask
    return {"targets": targets, "mask": mask, "old_values": 0.3 * torch.randn(mask.shape, generator=generator) * mask}


def value_after(critic: Critic, tokens: tuple[int, ...]) -> float:
    """What the critic says of the state after these tokens, in a pass of their own."""
    row = Trajectory((Turn(tokens, (PAD,), (), "?", "!", 0.0),), seed=0)
    with torch.no_grad():
        return critic.network(trajectory_batch([row], PAD))[0, 0].item()


def weights(critic: Critic) -> list[torch.Tensor]:
    """A copy of what the critic trains."""
    return [value.detach().clone() for value in critic.parameters]


POLICIES = {"model": small_model, "adapter": lora_policy}


@pytest.fixture(params=POLICIES)
def build(request: pytest.FixtureRequest) -> Any:
    """Makes a policy, the same each time."""
    return POLICIES[request.param]


def test_a_column_holds_what_the_tokens_before_it_are_worth(build: Any) -> None:
    critic, rows = make_critic(build()), episodes(3)
    values, after = critic.values(rows, [True, False, True])
    for row, trajectory in enumerate(rows):
        tokens, first = trajectory.token_ids, len(trajectory.turns[0].prompt_ids)
        acted = trajectory.action_mask
        expected = [value_after(critic, tokens[:place]) if acted[place] else 0.0 for place in range(first, len(tokens))]
        assert values[row, : len(expected)].tolist() == pytest.approx(expected, abs=1e-5)
        assert not values[row, len(expected) :].any()
        beyond = value_after(critic, tokens + trajectory.next_prompt_ids) if row != 1 else 0.0
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
    column, read = -len(turns[0].prompt_ids), ()
    for turn in whole.turns:
        read = read if turn.context_ids is None else turn.context_ids
        for place, token in enumerate((*turn.prompt_ids, *turn.reply_ids)):
            if place >= len(turn.prompt_ids):
                assert values[0, column].item() == pytest.approx(value_after(critic, read), abs=1e-5)
            read, column = (*read, token), column + 1
    assert after[0].item() == pytest.approx(value_after(critic, (13, 14, 11, 12)), abs=1e-5)
    assert column == values.shape[1]
    torch.testing.assert_close(after[1:], critic.values([plain], [True])[1])


def with_another_end(row: Trajectory) -> Trajectory:
    """The same episode up to its last reply, which differs in its last token."""
    last = row.turns[-1]
    return replace(row, turns=(*row.turns[:-1], replace(last, reply_ids=(*last.reply_ids[:-1], 5))))


def test_rows_that_share_their_beginning_have_the_values_and_the_step_of_single_rows(build: Any) -> None:
    rows = [copy for row in episodes(4) for copy in (row, with_another_end(row))]
    options = {"per_device_train_batch_size": 8, **GENTLE}
    plain, packed = (make_critic(build(), shares_prefixes=shares, **options) for shares in (False, True))
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
    width = turn_columns(rows[:3]).shape[1]
    kept.update(rows[:3], **{key: value[:3, :width] for key, value in given.items()}, clip=0.5)
    assert results[0][0] == results[1][0]
    for first, second, third in zip(results[0][1], results[1][1], weights(kept), strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, third, rtol=1e-4, atol=1e-6)


# The networks: the policy beside them stays as it was, and a saved critic goes on

ROWS = episodes(4)
BATCH = whole_rows(trajectory_batch(ROWS, PAD))


def logits(policy: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = policy(BATCH[0], attention_mask=BATCH[1]).logits
    return result


def study(critic: Critic, times: int = 3) -> None:
    for seed in range(times):
        critic.update(ROWS, **lesson(ROWS, seed), clip=0.5)
        critic.values(ROWS, [False] * len(ROWS))


def state(policy: PeftModel) -> dict[str, Any]:
    """All about a policy that a critic's call could spoil."""
    own = list(policy.named_parameters())
    return {
        "adapters": list(policy.peft_config),
        "active": [policy.active_adapter, policy.active_adapters],
        "trainable": [name for name, value in own if value.requires_grad],
        "gradients": [name for name, value in own if value.grad is not None],
        "values": {name: value.detach().clone() for name, value in policy.state_dict().items()},
        "training": {name: module.training for name, module in policy.named_modules()},
    }


# PEFT's advice on adapters of tied embeddings, which one of these policies has on purpose.
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("settings", [{}, {"use_dora": True}, {"modules_to_save": ["embed_tokens"]}], ids=str)
def test_a_policy_with_an_adapter_does_not_notice_the_critic(settings: dict[str, Any], training: bool) -> None:
    policy = lora_policy(**settings)
    if not settings:
        policy.add_adapter("ref", policy.peft_config["default"])  # frozen, as TRL's reference is
    policy.train(training)
    before, said = state(policy), logits(policy.eval())
    policy.train(training)
    critic = make_critic(policy)
    study(critic)
    after = state(policy)
    old, new = before.pop("values"), after.pop("values")
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert after == before
    assert torch.equal(logits(policy.eval()), said)
    assert sum(value.numel() for value in critic.parameters) < 20_000  # no second base


def test_a_critic_on_an_adapter_begins_as_a_copy_of_it() -> None:
    policy = lora_policy()
    adapter = [value.detach().clone() for value in policy.parameters() if value.requires_grad]
    *copied, _, _ = weights(make_critic(policy))  # without weight and bias of the head
    assert all(torch.equal(own, copy) and bool(own.any()) for own, copy in zip(adapter, copied, strict=True))
