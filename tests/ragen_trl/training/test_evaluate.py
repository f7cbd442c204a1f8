"""The trainer's own evaluation, and the figures of a rollout, by hand: every row counts once, on all processes."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.training.metrics import UpdateMeans, filter_metrics, length_figures, reward_figures, rollout_figures
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import LAKE, Spy, logged, lottery, made_up, parameters, rollout_of, small_trainer


def odd(seed: list[int], **_: Any) -> list[float | None]:
    """1 for the first of every eight start states and for all from the ninth on; nothing for the third."""
    return [None if one % 8 == 2 and one < 8008 else float(one % 8 == 0 or one >= 8008) for one in seed]


def test_all_figures_are_those_of_all_rows(tmp_path: Path) -> None:
    """Those of one batch of ten rows; whatever the size of the batches, the same episodes are played."""
    options: dict[str, Any] = {"num_eval_seeds": 10, "reward_funcs": [odd], "num_generations_eval": 2, "trainer": Spy}
    whole: Any = small_trainer(tmp_path, lottery(draws=3), per_device_eval_batch_size=20, **options)
    expected = whole.evaluate()
    parts: Any = small_trainer(tmp_path, lottery(draws=3), per_device_eval_batch_size=6, **options)
    found = parts.evaluate()
    assert [one.token_ids for one in parts.played] == [one.token_ids for one in whole.played]
    same = {name: value for name, value in expected.items() if not name.endswith("runtime")}
    assert len(same) > 20
    assert {name: found[name] for name in same} == pytest.approx(same, rel=1e-9, nan_ok=True)
    success = fmean(one.success for one in whole.played)
    assert found["eval_success"] == pytest.approx(success)
    assert 0 < success < 1


def test_an_evaluation_changes_no_bit_of_the_training(tmp_path: Path) -> None:
    """Four updates on a rollout, evaluated after each: rows are dealt out by the seed and the step alone."""
    ends: list[dict[str, torch.Tensor]] = []
    for options in ({}, {"eval_strategy": "steps", "eval_steps": 1, "num_eval_seeds": 8}):
        split = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "max_steps": 8, "learning_rate": 0.1}
        trainer = small_trainer(tmp_path, lottery(draws=3), **split, **options)  # type: ignore[arg-type]
        trainer.train()
        ends.append(parameters(trainer))
    assert len(logged(trainer, "eval_success")) == 8
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def asking(trajectory: list[Trajectory], log_metric: Any, **_: Any) -> list[float]:
    log_metric("asked", 1.0)
    return [0.0] * len(trajectory)


def test_an_evaluation_between_two_logs_takes_no_metric_of_the_training(tmp_path: Path) -> None:
    """Regression: its row took what the updates before it had to log, and left out its own reward functions'."""
    schedule: dict[str, Any] = {"max_steps": 4, "logging_steps": 4, "eval_strategy": "steps", "eval_steps": 2}
    trainer = small_trainer(tmp_path, lottery(draws=3), reward_funcs=[asking], num_eval_seeds=8, **schedule)
    trainer.train()
    rows = trainer.state.log_history
    evaluated = next(row for row in rows if row["step"] == 2)
    assert "eval_asked" in evaluated and all(name.startswith("eval_") for name in evaluated.keys() - {"step", "epoch"})
    assert {"asked", "entropy", "success"} <= next(row for row in rows if "loss" in row).keys()


def test_another_data_set_is_logged_under_its_prefix(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, LAKE, num_eval_seeds=8)
    metrics = trainer.evaluate(trainer._tasks.evaluation_rows().select(range(4)), metric_key_prefix="eval_two")
    assert logged(trainer, "eval_two_success") == [metrics["eval_two_success"]]


def test_figures_by_hand() -> None:
    nan = float("nan")
    rewards = torch.tensor([[1.0, nan], [3.0, nan], [2.0, 4.0], [2.0, 4.0]], dtype=torch.float64)
    figures = reward_figures(rewards, ["a", "b"], torch.tensor([1.0, 0.5]), 2, "group")
    assert figures["rewards/a/mean"] == 2.0 and figures["rewards/b/mean"] == 4.0
    assert figures["reward"] == 3.0  # 1, 3, 4, 4
    assert figures["reward_std"] == pytest.approx(2**0.5)
    assert figures["frac_reward_zero_std"] == 0.5
    lengths = length_figures(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([True, True, False]))
    assert lengths["completions/mean_terminated_length"] == 3.0 and lengths["completions/mean_length"] == 5.0


def played(reward: float, turns: int = 1, tokens: int = 2, success: bool = False, **fields: Any) -> Trajectory:
    """Equal turns of one action each; the first one could not be read."""
    made = made_up(*[(1, tokens, reward / turns)] * turns, **fields)
    readable = [place > 0 for place in range(turns)]
    infos = [
        {"success": success, "format_is_valid": valid, "action_is_valid": valid, "num_actions": int(valid)}
        for valid in readable
    ]
    return replace(made, turns=tuple(replace(turn, info=info) for turn, info in zip(made.turns, infos, strict=True)))


def test_means_by_hand() -> None:
    rows = [played(1.0, turns=2, success=True), played(-0.5, turns=4, tokens=3, terminated=False, truncated=True)]
    figures = rollout_figures(rollout_of(rows, 1, envs=["lake", "lake"]), ["lake"], ["return"], "group")
    expected = {
        "success": 0.5,
        "return": 0.25,
        "format_valid": (1 / 2 + 3 / 4) / 2,
        "action_valid": (1 / 2 + 3 / 4) / 2,
        "turns": 3.0,
        "actions": 2.0,
        "reply_tokens": 8.0,
        "truncated": 0.5,
        "rollout/env_failures": 0.0,
        "completions/max_length": 12.0,
        "completions/clipped_ratio": 0.0,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    two = rollout_figures(rollout_of(rows, 1, envs=["lake", "pond"]), ["lake", "pond", "sea"], ["return"], "group")
    assert (two["lake/success"], two["pond/success"], "sea/success" in two) == (1.0, 0.0, False)


def test_means_of_an_update_are_those_of_all_its_tokens() -> None:
    """Micro-batches of one and three tokens, on two processes that have the same."""
    means = UpdateMeans()
    means.add({"kl": torch.tensor([[4.0, 9.0]])}, torch.tensor([[1, 0]]))
    means.add({"kl": torch.tensor([[1.0, 2.0, 3.0]])}, torch.tensor([[1, 1, 1]]))
    for loss in (1.0, 2.0):
        means.add_loss(torch.tensor(loss))
    means.add_largest("gap", 0.5)
    means.add_largest("gap", 0.25)
    found = means.taken(lambda local: 2 * local, processes=2)
    assert found == pytest.approx({"kl": 10 / 4, "policy_loss": 3.0, "gap": 0.5})
    assert means.taken(lambda local: 2 * local, processes=2) == {}


def groups_of(*returns: float, size: int = 2) -> RolloutBatch:
    return rollout_of([made_up((1, 1, reward)) for reward in returns], size)


def test_what_the_filter_did_by_hand() -> None:
    """Standard deviations √2, 0, 2√2, of which the third is kept."""
    metrics = filter_metrics(groups_of(0.0, 2.0, 1.0, 1.0, 4.0, 0.0), [2])
    assert metrics == pytest.approx(
        {
            "filter/kept_groups": 1,
            "filter/trajectories_sampled": 6,
            "filter/trajectories_used": 2,
            "filter/skipped": 0,
            "filter/in_group_std": 2**0.5,
            "filter/kept_in_group_std": 2 * 2**0.5,
        }
    )
