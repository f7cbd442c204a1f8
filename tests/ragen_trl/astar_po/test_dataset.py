"""A*-PO on a user's data set of start states: a start state has one row, whose columns go wherever it is played."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from ragen_trl import AStarPOConfig, StarPOTrainer
from ragen_trl.rollout.seeds import StartStateError
from tests.support.ragen_trl.astar_runs import Spy
from tests.support.ragen_trl.trainers import small_trainer

SEEDS = list(range(10_000, 10_008))
NEVER_WON = SEEDS[:4]


class Lucky(Spy):
    """An episode wins by its outcome seed, but never from the first four start states."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        for index, start in enumerate(starts):
            won = start.seed not in NEVER_WON and start.outcome_seed % 2 == 1
            turn = replace(played[index].turns[-1], reward=float(won), info={**played[index].turns[-1].info})
            turn.info["success"] = won
            played[index] = replace(played[index], turns=(turn,))
        return played


def make(folder: Path, columns: dict[str, list[Any]], **options: Any) -> Any:
    """A run on the rows of eight bandits, with these further columns."""
    data = Dataset.from_dict({"env": ["ragen/Bandit-v0"] * 8, "seed": SEEDS, **columns})
    stage = {"num_generations": 1, "reference_samples": 4, "max_reference_samples": 4, "max_turns": 1}
    return small_trainer(folder, None, AStarPOConfig, Lucky, train_dataset=data, **{**stage, **options})


def test_both_stages_and_exchanged_starts_have_the_columns_of_their_own_row(tmp_path: Path) -> None:
    """Regression: stage 1 had no columns at all, and an exchanged start had those of the one that it replaced."""
    seen: list[tuple[int, float]] = []

    def bonus(seed: list[int], bonus: list[float], **_: Any) -> list[float]:
        seen.extend(zip(seed, bonus, strict=True))
        return bonus

    trainer = make(tmp_path, {"bonus": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}, reward_funcs=[bonus], max_steps=2)
    trainer.train()
    assert len(seen) == 8 * 4 + 2 * 8
    assert {(seed, value) for seed, value in seen} == {(seed, seed - 10_000.0) for seed in SEEDS}
    values = trainer.values[0]
    assert not set(values.trainable) & set(NEVER_WON)
    assert {seed for seed, _ in seen[32:]} <= set(values.trainable)  # four of eight rows, at least, were exchanged
    for seed in NEVER_WON:
        assert values.of(seed).mean == seed - 10_000.0
    for seed in values.trainable:
        assert seed - 10_000.0 < values.of(seed).mean < seed - 9_999.0


def test_a_start_state_with_two_different_rows_is_refused(tmp_path: Path) -> None:
    """Its one V* would be that of another reward. StarPO, which compares within a group, takes such rows."""
    seeds = [*SEEDS[:7], SEEDS[2]]
    levels = {"seed": seeds, "level": [1, 2, 3, 4, 5, 6, 7, 8]}
    with pytest.raises(StartStateError, match="row 7 .*seed 10002 of another row, but other columns differ.*one row"):
        make(tmp_path, levels)
    make(tmp_path, {**levels, "level": [1, 2, 3, 4, 5, 6, 7, 3]})  # the same row twice
    make(tmp_path, {**levels, "level": [float("nan")] * 8})  # an empty cell is not equal to itself
    data = Dataset.from_dict({"env": ["ragen/Bandit-v0"] * 8, **levels})
    small_trainer(tmp_path, None, trainer=StarPOTrainer, train_dataset=data)


def test_runs_share_stored_returns_only_if_reward_functions_get_the_same_columns(tmp_path: Path) -> None:
    """Regression: the columns were not in the cache's key, so that other targets met V* of the former ones."""

    def bonus(bonus: list[float], **_: Any) -> list[float]:
        return bonus

    def estimated(columns: dict[str, list[Any]], *functions: Any) -> tuple[int, float]:
        options = {"reward_funcs": list(functions), "value_cache": str(tmp_path / "values.sqlite")}
        (values,) = make(tmp_path, columns, **options).estimate_values().values()
        return values.played, values.summary()["mean_value"]

    _, plain = estimated({"bonus": [0.0] * 8}, bonus)
    played, raised = estimated({"bonus": [100.0] * 8}, bonus)
    assert played == 8 * 4 and raised == pytest.approx(plain + 100)
    assert estimated({"bonus": [100.0] * 8}, bonus) == (0, raised)
    assert estimated({"bonus": [1.0] * 8})[0] == 8 * 4  # without a function nothing reads them
    assert estimated({"bonus": [2.0] * 8})[0] == 0
