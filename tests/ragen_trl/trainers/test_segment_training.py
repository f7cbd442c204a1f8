"""Training on contexts of the last turns: rows as they were read, and the step of whole rows where they agree."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from ragen_trl import StarPOTrainer
from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.errors import OptionError
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.astar_runs import Spy, astar, draws, gradient
from tests.support.ragen_trl.equivalence import (
    CREDITS,
    STEP,
    Alone,
    Awake,
    assert_same_step,
    step,
    with_adapter,
)
from tests.support.ragen_trl.trainers import TOKENIZER, lottery, parameters, small_model, small_trainer


class AloneAwake(Alone, Awake):
    """Its critic reads every turn in a row of its own."""


TWICE = {"num_iterations": 2, "max_steps": 2, "learning_rate": 0.5}
OFF = {"max_steps": 3, "learning_rate": 0.3}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon_high": 0.3},
    "dapo": {"loss_type": "dapo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "gigpo": {"advantage": "gigpo", **CREDITS["gigpo"]},
    "mt_grpo and filter": {"advantage": "mt_grpo", **CREDITS["mt_grpo"], "filter_ratio": 0.4},
    "two passes": TWICE,
    "gspo": {"importance_sampling_level": "sequence"},
    "gspo, two passes": {"importance_sampling_level": "sequence", **TWICE},
    "gspo and dapo, two passes": {"importance_sampling_level": "sequence", "loss_type": "dapo", **TWICE},
    "gspo and kl, two passes": {"importance_sampling_level": "sequence", "beta": 0.5, **TWICE},
    "gspo, one step off": {"importance_sampling_level": "sequence", "one_step_off_policy": True, **OFF},
    "cispo, two passes": {"loss_type": "cispo", "epsilon_high": 5.0, **TWICE},
    "gae": {"advantage": "gae", **CREDITS["gae"], "bootstrap": "all"},
    "turn_gae and two critic steps": {"advantage": "turn_gae", **CREDITS["turn_gae"], "critic_batch_size": 12},
    "bi_level_gae and filter": {"advantage": "bi_level_gae", **CREDITS["bi_level_gae"], "filter_ratio": 0.4},
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_read_what_one_context_holds_make_the_same_step(tmp_path: Path, name: str) -> None:
    """24 trajectories of one to three turns in a row each, and in a row for each turn; also what is logged."""
    options = {**STEP, "entropy_coef": 0.01, "gradient_accumulation_steps": 3, **CASES[name]}
    steps, logs = [], []
    for trainer in (Awake, AloneAwake):
        if "beta" in options:
            options["model"] = with_adapter()
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, per_device_train_batch_size=8, **options)
        steps.append(step(made))
        logs.append(made.state.log_history[-2])
    assert_same_step(*steps)
    of_critic = [key for key in logs[0] if key.startswith("critic/")]
    assert bool(of_critic) == ("gae" in name)
    shares = [key for key in logs[0] if key.startswith(("clip_ratio", "cispo")) and not key.endswith(("min", "max"))]
    assert shares
    for key in ("entropy", "loss", "grad_norm", *({"kl"} & logs[0].keys()), *shares, *of_critic):
        assert logs[1][key] == pytest.approx(logs[0][key], rel=1e-3, abs=1e-6), key


class AloneSpy(Alone, Spy):
    """A*-PO with every turn in a row of its own."""


OF_REGRESSION: list[dict[str, Any]] = [{}, {"kl_coef": 0.1, "residual_cap": 0.5}, {"loss_scale": "paper", "beta2": 0.1}]


@pytest.mark.parametrize("changes", OF_REGRESSION)
def test_a_regression_adds_up_the_rows_of_a_trajectory(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A*-PO's second update, whose policy differs from the reference, by 4 rows a pass: loss, gradient and log."""
    options = {**STEP, "max_steps": 2, "learning_rate": 0.3, "gradient_accumulation_steps": 4, "num_train_seeds": 16}
    steps, logs = [], []
    for trainer in (Spy, AloneSpy):
        folder = tmp_path / trainer.__name__
        made = astar(folder, draws(), trainer, per_device_train_batch_size=4, **options, **changes)
        steps.append(step(made))
        logs.append(made.state.log_history[:2])
    assert_same_step(*steps)
    assert abs(logs[0][1]["astar/log_ratio"]) > 1e-3
    for key in ("loss", "grad_norm", "entropy", "kl", "astar/log_ratio", "astar/residual", "astar/residual_squared"):
        for whole, rows in zip(*logs, strict=True):
            assert rows[key] == pytest.approx(whole[key], rel=1e-3, abs=1e-6), key


def test_the_reference_scores_the_rows_that_are_trained(tmp_path: Path) -> None:
    """With a reference that differs from the policy, the KL and its gradient are those of whole trajectories."""
    steps, logs = [], []
    for trainer in (StarPOTrainer, Alone):
        options = {**STEP, "beta": 0.5, "learning_rate": 0.3, "max_steps": 2, "model": with_adapter()}
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, **options)
        steps.append(step(made))
        logs.append(made.state.log_history[1]["kl"])  # in the first update the reference is the policy
    assert_same_step(*steps)
    assert logs[1] == pytest.approx(logs[0], rel=1e-3) and logs[0] > 1e-4


class Windowed(StarPOTrainer):
    """Keeps what it played."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        self.played_rows = super().rollout(starts, envs, policy)
        return self.played_rows


def rows_read(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [segment for trajectory in trajectories for segment in trajectory.segments]


def test_what_was_read_is_what_is_trained(tmp_path: Path) -> None:
    """Ratios are 1, and the gradient is that of a slow loop over contexts, each token in the one it was sampled in."""
    options: dict[str, Any] = {**STEP, "entropy_coef": 0.0, "gradient_accumulation_steps": 2, "window_turns": 2}
    trainer = small_trainer(tmp_path, lottery(draws=4), trainer=Windowed, per_device_train_batch_size=8, **options)
    moved = step(trainer)
    played: list[Trajectory] = trainer.played_rows  # type: ignore[attr-defined]
    assert max(len(one.turns) for one in played) == 4
    assert max(len(one.segments) for one in played) == 3
    advantages = group_advantages(torch.tensor([one.episode_return for one in played]), 4, "mean", "group")
    tokens = [one.num_reply_tokens for one in played]
    weights = [
        advantages[place].item() / tokens[place] / len(played) for place, one in enumerate(played) for _ in one.segments
    ]
    assert_same_step(gradient(rows_read(played), weights), moved)
    assert trainer.state.log_history[0]["sampling/ratio_deviation_max"] < 1e-3


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_an_evaluation_of_rows_has_the_figures_of_trajectories(tmp_path: Path, loss_type: str) -> None:
    """Ten start states of two episodes in batches of eight, so that the last one repeats rows; with a KL term."""
    found = []
    for trainer in (StarPOTrainer, Alone):
        options = {"num_generations_eval": 2, "num_eval_seeds": 10, "per_device_eval_batch_size": 8, "beta": 0.5}
        made = small_trainer(
            tmp_path, lottery(draws=3), trainer=trainer, model=with_adapter(), loss_type=loss_type, **options
        )
        with torch.no_grad():
            for value in filter(lambda value: value.requires_grad, made.model.parameters()):
                value *= 2  # the reference keeps the adapter as it was
        metrics = made.evaluate()
        found.append({**made.state.log_history[-1], "eval_loss": metrics["eval_loss"]})
    assert found[0]["eval_kl"] > 1e-3 < abs(found[0]["eval_loss"])
    compared = [key for key in found[0] if not key.endswith(("time", "seconds", "second", "low_min", "high_max"))]
    assert len(compared) > 20
    for key in compared:
        assert found[1][key] == pytest.approx(found[0][key], rel=1e-4, abs=1e-7), key


def test_an_evaluation_scores_what_was_read(tmp_path: Path) -> None:
    """Regression: the entropy was that of one long row, which the model never reads, and whose passes are as long."""
    model = small_model()
    with torch.no_grad():
        for value in model.parameters():
            value *= 4
    trainer = small_trainer(
        tmp_path, lottery(draws=4), trainer=Windowed, model=model, window_turns=1, num_eval_seeds=8
    )
    trainer.evaluate()
    total, tokens = 0.0, 0
    for row in rows_read(trainer.played_rows):  # type: ignore[attr-defined]
        with torch.no_grad():
            logprobs = trainer.model(torch.tensor([row.token_ids])).logits[0].log_softmax(dim=-1)
        sampled = torch.tensor(row.action_mask[1:]).bool()
        total -= (logprobs.exp() * logprobs).sum(dim=-1)[:-1][sampled].sum().item()
        tokens += int(sampled.sum())
    assert trainer.state.log_history[-1]["eval_entropy"] == pytest.approx(total / tokens, rel=1e-5)


def test_an_evaluation_of_rows_keeps_no_graph_and_no_more_rows_a_pass_than_it_may(tmp_path: Path) -> None:
    """Regression: activations of all rows were kept until the loss, and its own pass took them all at a time."""

    class Passes(StarPOTrainer):
        def _score_rows(self, model: Any, ids: Any, attention: Any, width: int, *others: Any, **options: Any) -> Any:
            found = super()._score_rows(model, ids, attention, width, *others, **options)
            assert not torch.is_grad_enabled() and not found[0].requires_grad
            rows.append(len(ids))
            return found

    def counted(module: Any, arguments: Any, given: Any) -> None:
        passes.append(len(given["input_ids"] if "input_ids" in given else arguments[0]))

    rows: list[int] = []
    passes: list[int] = []
    options = {"num_eval_seeds": 8, "per_device_eval_batch_size": 4, "beta": 0.5, "window_turns": 1}
    made = small_trainer(tmp_path, lottery(draws=4), trainer=Passes, model=with_adapter(), **options)
    made.shares_prefixes = False
    made.model.register_forward_pre_hook(counted, with_kwargs=True)
    made.evaluate()
    assert len(rows) == 4 and rows[0] == rows[1] > 4  # of two batches, the reference's and the loss's
    assert max(passes) == 4


def test_a_slid_window_begins_with_the_rules_and_the_turn_it_begins_at(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(draws=4), trainer=Windowed, max_steps=1, window_turns=2)
    trainer.train()
    played = next(one for one in trainer.played_rows if len(one.turns) == 4)  # type: ignore[attr-defined]
    last = played.segments[-1]
    text = TOKENIZER.decode(last.token_ids)
    assert text.count("Say something.") == 1
    assert "Turn 3 of 4" in text and "Turn 4 of 4" in text
    assert "Turn 1 of 4" not in text and "Turn 2 of 4" not in text
    third = played.turns[2].reply_ids
    assert third in [last.token_ids[first : first + len(third)] for first in range(len(last.token_ids))]


def test_a_trainer_says_so_when_it_meets_such_a_trajectory(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(draws=3), trainer=Alone, loss_type="luspo", max_steps=1)
    with pytest.raises(OptionError, match="luspo"):
        trainer.train()


@pytest.mark.parametrize("window", [None, 1])
def test_a_routers_loss_would_scatter_the_rows_of_a_trajectory_over_updates(tmp_path: Path, window: int | None) -> None:
    """It keeps TRL's micro-batches, which rows are dealt to one by one; found at once where contexts are rebuilt."""

    class Routed(Alone):
        aux_loss_enabled = property(lambda self: True, lambda self, value: None)

    options = {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    message = r"into 2 updates \(steps_per_generation 4 / gradient_accumulation_steps 2\), and with rebuilt contexts"
    with pytest.raises(OptionError, match=message):
        trainer = small_trainer(tmp_path, lottery(draws=3), trainer=Routed, window_turns=window, **options)
        assert window is None
        trainer.train()


def test_an_evaluation_of_rows_has_a_routers_loss_of_one_pass(tmp_path: Path) -> None:
    """Regression: in several passes there was none, which ended in a TypeError."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    mixture = MixtralConfig(
        vocab_size=len(TOKENIZER), num_key_value_heads=1, num_local_experts=2, output_router_logits=True, **sizes
    )
    options = {"num_eval_seeds": 8, "per_device_eval_batch_size": 4, "window_turns": 1, "loss_type": "dapo"}
    made = small_trainer(tmp_path, lottery(draws=4), model=MixtralForCausalLM(mixture), **options)
    assert made.aux_loss_enabled and made.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize("window", [1, 3, 4])
def test_a_window_that_holds_every_turn_changes_nothing_and_a_shorter_one_what_is_read(
    tmp_path: Path, window: int
) -> None:
    played = []
    for turns in (None, window):
        trainer = small_trainer(tmp_path, lottery(draws=4), trainer=Windowed, max_steps=1, window_turns=turns)
        trainer.train()
        played.append(trainer.played_rows)  # type: ignore[attr-defined]
    assert max(len(one.turns) for one in played[1]) == 4
    assert [len(one.turns) for one in played[0]] == [len(one.turns) for one in played[1]]
    for whole, seen in zip(*played, strict=True):
        assert seen.turns[:window] == whole.turns[:window]  # the same seeds, the same contexts
        built = [turn.context_ids is not None for turn in seen.turns]
        assert built == [place >= window for place in range(len(seen.turns))]
    if window >= 4:
        assert played[0] == played[1]


WIDE: dict[str, dict[str, Any]] = {
    "group": {},
    "gae": {"advantage": "gae", "bootstrap": "all"},
    "gspo": {"importance_sampling_level": "sequence", "num_iterations": 2},
    "kl, two passes": {"beta": 0.5, "num_iterations": 2},
    "one step off": {"one_step_off_policy": True},
}


@pytest.mark.parametrize("name", [*WIDE, "a-star-po"])
def test_a_window_that_never_slides_changes_no_bit(tmp_path: Path, name: str) -> None:
    after = []
    small_model().save_pretrained(tmp_path / "model")  # TRL reads the reference of a KL term from a folder
    TOKENIZER.save_pretrained(tmp_path / "model")
    for window in (None, 4):
        options = {"max_steps": 2, "learning_rate": 1e-2, "window_turns": window, **WIDE.get(name, {})}
        options |= {"model": str(tmp_path / "model")} if "beta" in options else {}
        folder = tmp_path / str(window)
        make = astar if name == "a-star-po" else small_trainer
        trainer = make(folder, lottery(draws=4), **options)
        trainer.train()
        after.append(parameters(trainer))
    assert all(torch.equal(value, after[1][key]) for key, value in after[0].items())
    assert any(not torch.equal(value, small_model().state_dict()[key]) for key, value in after[0].items())


def test_a_window_needs_one_turn_and_a_loss_that_takes_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="window_turns is 0; the model sees at least the present turn"):
        small_trainer(tmp_path, window_turns=0)
    with pytest.raises(OptionError, match="window_turns is 2; leave it unset, or change this: loss_type is 'luspo'"):
        small_trainer(tmp_path, window_turns=2, loss_type="luspo")
