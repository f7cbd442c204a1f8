"""Start states without spread give their places to others, and the columns of a row go wherever it is played."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from ragen_trl import AStarPOConfig
from ragen_trl.errors import OptionError
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
        assert values.starts[seed].mean == seed - 10_000.0
    for seed in values.trainable:
        assert seed - 10_000.0 < values.starts[seed].mean < seed - 9_999.0


def test_a_start_state_with_two_rows_of_columns_is_refused_where_rewards_read_them(tmp_path: Path) -> None:
    """Regression: V* was silently of the first row's columns."""

    def bonus(bonus: list[float], **_: Any) -> list[float]:
        return bonus

    twice = {"seed": [*SEEDS[1:], SEEDS[1]], "bonus": [0.0] * 7 + [1.0]}
    make(tmp_path, twice).estimate_values()  # no reward function reads them
    with pytest.raises(OptionError, match="seed 10001 of Bandit-v0 in two rows with different \\['bonus'\\]"):
        make(tmp_path, twice, reward_funcs=[bonus]).estimate_values()
