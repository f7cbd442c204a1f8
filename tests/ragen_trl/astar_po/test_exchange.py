"""Start states without spread give their places to others; in a curriculum to ones that are about as hard."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset

import ragen_envs
from ragen_trl import AStarPOConfig
from ragen_trl.astar_po.exchange import exchanged
from tests.support.ragen_trl.astar_runs import Spy, astar
from tests.support.ragen_trl.trainers import AnyReply, Lottery, parameters, small_trainer


def known(*trainable: int, seeds: range = range(100)) -> Any:
    """V* of an environment in which only these seeds have spread."""
    of = {seed: SimpleNamespace(zero_variance=seed not in trainable) for seed in seeds}
    return SimpleNamespace(of=of.__getitem__, trainable=list(trainable))


def test_by_hand_the_nearest_ones_that_the_rollout_lacks_are_taken() -> None:
    values = {0: known(30, 31, 50, 90)}
    groups = [(0, 30), (0, 10), (0, 11), (0, 80), (0, 12)]
    found = exchanged(groups, values, [0], lambda task, seed: seed)
    assert found == [(0, 30), (0, 31), (0, 50), (0, 90), (0, 30)]  # at the end each is there: the nearest comes twice
    assert exchanged(groups[:2], values, [0], lambda task, seed: seed, played=[(0, 31)]) == [(0, 30), (0, 50)]


class Graded(Lottery):
    """The lowest quarter of the grades always wins, as easy start states do for a warm-started reference."""

    def _start(self, options: Any) -> str:
        self.grade = int(self.np_random.integers(16))
        return f"{super()._start(options)}, grade {self.grade}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        shown, reward, over, info = super()._act(action)
        return (shown, reward, over, info) if self.grade >= 4 else (shown, self.win, over, {**info, "success": True})


@ragen_envs.difficulty.register
def _(env: Graded) -> float:
    return float(env.grade)


def graded() -> AnyReply:
    return AnyReply(Graded(), think=False, max_turns=1, max_actions=99, max_actions_per_turn=1)


CURRICULUM: dict[str, Any] = {"curriculum_rollouts": 6, "num_train_seeds": 64, "max_steps": 10, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def eased(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with a curriculum and a checkpoint in it, which two tests read."""
    folder = tmp_path_factory.mktemp("eased")
    trainer = astar(folder, graded, **CURRICULUM, save_strategy="steps", save_steps=3)
    trainer.train()
    return trainer


def test_a_run_that_is_resumed_within_its_curriculum_ends_where_an_unbroken_one_does(eased: Any) -> None:
    folder = Path(eased.args.output_dir)
    resumed = astar(folder, graded, **CURRICULUM, save_strategy="steps", save_steps=3)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    assert [one.seed for one in resumed.played] == [one.seed for one in eased.played[3 * 8 :]]
    end = parameters(eased)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())


# A data set of start states: the columns of a row go wherever it is played

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
