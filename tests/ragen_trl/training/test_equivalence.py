"""Pairs of runs that take the same step: micro-batches, and rows that are parts of trajectories."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.rollout.teacher import corrections
from ragen_trl.training import scoring
from tests.support.ragen_trl import astar_runs
from tests.support.ragen_trl.astar_runs import astar, draws, gradient
from tests.support.ragen_trl.equivalence import (
    CREDITS,
    STEP,
    Alone,
    Awake,
    assert_same_step,
    played_in_turns,
    step,
)
from tests.support.ragen_trl.trainers import TOKENIZER, Spy, logged, lottery, small_trainer, with_adapter

CASES: list[tuple[str, dict[str, Any]]] = [
    *((advantage, {}) for advantage in CREDITS),
    ("group", {"loss_type": "dapo", "importance_sampling_level": "sequence"}),
    ("group", {"loss_type": "cispo", "epsilon_high": 5.0}),
    ("group", {"beta": 0.5, "oracle_coef": 0.5}),
    ("gae", {"loss_type": "dapo"}),
    ("gigpo", {"loss_type": "dr_grpo"}),
    ("group", {"num_iterations": 2, "max_steps": 2, "learning_rate": 0.1}),
]


@pytest.mark.parametrize(("advantage", "options"), CASES)
def test_the_split_into_micro_batches_and_what_rows_share_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advantage: str, options: dict[str, Any]
) -> None:
    """One batch of single rows against 6 micro-batches that share their beginnings, with an entropy bonus.

    A filter of 0.4 keeps 2 of 6 groups: 8 trajectories, which 4 rows of filler make up to 6 · 2.
    """
    options = {"filter_ratio": 0.4, **options}
    whole = played_in_turns(tmp_path, advantage, 24, 1, **options)
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "can_share_prefixes", lambda *_: False)
        expected = step(whole)
    split = played_in_turns(tmp_path, advantage, 4, 6, **options)
    assert_same_step(expected, step(split))
    for one in (whole, split):
        assert one.state.log_history[0]["filter/trajectories_used"] == 8
    critics = [one.critic.parameters for one in (whole, split) if one.critic is not None]
    assert len(critics) == (2 if "gae" in advantage else 0)
    for first, second in zip(*critics, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=2e-5)  # Adam blows rounding up


def test_two_updates_on_one_rollout_do_not_depend_on_the_split(tmp_path: Path) -> None:
    """12 kept rows make two updates of 6 rows, each in one micro-batch or in three."""
    options = {"loss_type": "dapo", "max_steps": 2, "learning_rate": 0.1, "filter_ratio": 0.5}
    whole = played_in_turns(tmp_path, "gae", 12, 1, steps_per_generation=2, **options)
    split = played_in_turns(tmp_path, "gae", 4, 3, steps_per_generation=6, **options)
    assert_same_step(step(whole), step(split))
    deviations = [run.state.log_history[1]["sampling/ratio_deviation_max"] for run in (whole, split)]
    assert deviations[0] > 1e-3  # the second is off-policy
    assert deviations[1] == pytest.approx(deviations[0], rel=1e-3)


class Dropping(Spy):
    """Its filter keeps nothing."""

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        return []


@pytest.mark.parametrize("options", [{}, {"window_turns": 1, "gradient_accumulation_steps": 2}], ids=str)
def test_the_oracles_replies_are_learnt_where_the_filter_keeps_nothing(tmp_path: Path, options: Any) -> None:
    """One turn of each episode, by the gradient of a slow loop; in the second of two updates the weight is half."""
    options = {**STEP, "oracle_coef": 3.0, "entropy_coef": 0.0, **options}
    trainer: Any = small_trainer(tmp_path, trainer=Dropping, **options)
    moved = step(trainer)
    random = np.random.default_rng([trainer.args.seed, 0, 1, 0])
    lessons = [(told := corrections(one))[random.integers(len(told))] for one in trainer.played]
    assert len({len(one.turns[0].prompt_ids) for one in lessons}) > 1  # of first and of second turns
    tokens = sum(one.num_reply_tokens for one in lessons)
    assert_same_step(gradient(lessons, [3.0 / tokens] * len(lessons)), moved)
    trainer = small_trainer(tmp_path, trainer=Dropping, **{**options, "max_steps": 2, "learning_rate": 0.0})
    trainer.train()
    nll = logged(trainer, "oracle/nll")
    assert logged(trainer, "loss") == pytest.approx([3.0 * nll[0], 1.5 * nll[1]], rel=1e-4)


# Training on contexts of the last turns: rows as they were read, and the step of whole rows where they agree


class AloneAwake(Alone, Awake):
    """Its critic reads every turn in a row of its own."""


TWICE = {"num_iterations": 2, "max_steps": 2, "learning_rate": 0.5}
OF_ROWS: dict[str, dict[str, Any]] = {
    "dr_grpo": {"loss_type": "dr_grpo"},
    "gigpo": {"advantage": "gigpo", **CREDITS["gigpo"]},
    "mt_grpo and filter": {"advantage": "mt_grpo", **CREDITS["mt_grpo"], "filter_ratio": 0.4},
    "kl, two passes": {"beta": 0.5, **TWICE},
    "cispo, two passes": {"loss_type": "cispo", "epsilon_high": 5.0, **TWICE},
    "gae": {"advantage": "gae", **CREDITS["gae"], "bootstrap": "all"},
    "turn_gae and two critic steps": {"advantage": "turn_gae", **CREDITS["turn_gae"], "critic_batch_size": 12},
    "bi_level_gae and filter": {"advantage": "bi_level_gae", **CREDITS["bi_level_gae"], "filter_ratio": 0.4},
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_that_read_what_one_context_holds_make_the_same_step(tmp_path: Path, name: str) -> None:
    """24 trajectories of one to three turns in a row each, and in a row for each turn; also what is logged."""
    options = {**STEP, "entropy_coef": 0.01, "gradient_accumulation_steps": 3, **OF_ROWS[name]}
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


class AloneAStar(Alone, astar_runs.Spy):
    """A*-PO with every turn in a row of its own."""


@pytest.mark.parametrize("changes", [{"kl_coef": 0.1, "loss_scale": "paper", "beta2": 0.1}])
def test_a_regression_adds_up_the_rows_of_a_trajectory(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A*-PO's second update, whose policy differs from the reference, by 4 rows a pass: loss, gradient and log."""
    options = {**STEP, "max_steps": 2, "learning_rate": 0.3, "gradient_accumulation_steps": 4, "num_train_seeds": 16}
    steps, logs = [], []
    for trainer in (astar_runs.Spy, AloneAStar):
        folder = tmp_path / trainer.__name__
        made = astar(folder, draws(), trainer, per_device_train_batch_size=4, **options, **changes)
        steps.append(step(made))
        logs.append(made.state.log_history[:2])
    assert_same_step(*steps)
    first = logs[0][0]  # "paper": the mean square itself, while the policy is the reference
    assert first["loss"] == pytest.approx(first["astar/residual_squared"], rel=1e-5)
    made = astar(tmp_path / "wide", draws(), window_turns=3, per_device_train_batch_size=4, **options, **changes)
    assert all(torch.equal(value, steps[0][name]) for name, value in step(made).items())  # a window that never slides
    assert abs(logs[0][1]["astar/log_ratio"]) > 1e-3
    for key in ("loss", "grad_norm", "entropy", "kl", "astar/log_ratio", "astar/residual", "astar/residual_squared"):
        for whole, rows in zip(*logs, strict=True):
            assert rows[key] == pytest.approx(whole[key], rel=1e-3, abs=1e-6), key


def test_what_was_read_is_what_is_trained(tmp_path: Path) -> None:
    """Ratios are 1, and the gradient is that of a slow loop over contexts, each token in the one it was sampled in."""
    options: dict[str, Any] = {**STEP, "entropy_coef": 0.0, "gradient_accumulation_steps": 2, "window_turns": 2}
    trainer: Any = small_trainer(tmp_path, lottery(draws=4), trainer=Spy, per_device_train_batch_size=8, **options)
    moved = step(trainer)
    played = trainer.played
    assert max(len(one.turns) for one in played) == 4
    assert max(len(one.segments) for one in played) == 3
    advantages = group_advantages(torch.tensor([one.episode_return for one in played]), 4, "mean", "group")
    tokens = [one.num_reply_tokens for one in played]
    weights = [
        advantages[place].item() / tokens[place] / len(played) for place, one in enumerate(played) for _ in one.segments
    ]
    assert_same_step(gradient([row for one in played for row in one.segments], weights), moved)
    assert trainer.state.log_history[0]["sampling/ratio_deviation_max"] < 1e-3
    last = next(one for one in played if len(one.turns) == 4).segments[-1]
    text = TOKENIZER.decode(last.token_ids)  # a slid window begins with the rules and the turn it begins at
    assert [text.count(said) for said in ("Say something.", "Turn 2 of 4", "Turn 3 of 4", "Turn 4 of 4")] == [
        1,
        0,
        1,
        1,
    ]
