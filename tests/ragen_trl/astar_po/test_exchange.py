"""Start states without spread give their places to others; in a curriculum to ones that are about as hard."""

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import ragen_envs
from ragen_trl.astar_po import trainer as module
from ragen_trl.astar_po.exchange import exchanged
from tests.support.ragen_trl.astar_runs import Spy, astar
from tests.support.ragen_trl.trainers import AnyReply, Lottery, logged, parameters

INF = float("inf")


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


def test_each_environment_has_its_own_and_one_that_no_oracle_solves_has_others_like_it() -> None:
    values = {0: known(1, 2), 1: known(3, 4)}
    hardness = {(0, 0): INF, (0, 1): 1, (0, 2): INF, (1, 0): 5, (1, 3): 9, (1, 4): 6}
    found = exchanged([(0, 0), (1, 0)], values, [0], lambda *start: hardness[start])
    assert found == [(0, 2), (1, 4)]


def test_ties_are_drawn_and_equal_entropy_draws_equally() -> None:
    values = {0: known(*range(50, 60))}
    found = [exchanged([(0, 1)], values, [seed], lambda task, seed: 1)[0] for seed in range(40)]
    assert len(set(found)) > 5
    assert found == [exchanged([(0, 1)], values, [seed], lambda task, seed: 1)[0] for seed in range(40)]


def test_without_a_curriculum_they_are_drawn_as_ever() -> None:
    """Runs that were stopped before go on with the same start states."""
    values = {0: known(20, 21, 22, 23, 24)}
    groups = [(0, seed) for seed in (3, 20, 4, 5)]
    streams = [np.random.default_rng([7, 2, 0, group, seed]) for group, seed in ((0, 3), (2, 4), (3, 5))]
    first, third, fourth = (int(stream.choice([20, 21, 22, 23, 24])) for stream in streams)
    assert exchanged(groups, values, [7, 2, 0]) == [(0, first), (0, 20), (0, third), (0, fourth)]


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


def rollouts(trainer: Spy, size: int = 8) -> list[list[float]]:
    """Difficulties of the start states of each rollout."""
    hard = trainer._tasks.difficulty
    return [[hard(0, one.seed) for one in trainer.played[k : k + size]] for k in range(0, len(trainer.played), size)]


@pytest.fixture(scope="module")
def eased(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with a curriculum and a checkpoint in it, which two tests read."""
    folder = tmp_path_factory.mktemp("eased")
    trainer = astar(folder, graded, **CURRICULUM, save_strategy="steps", save_steps=3)
    trainer.train()
    return trainer


def test_a_curriculum_of_astar_po_stays_one(eased: Any) -> None:
    """Its first rollouts were mostly exchanged, for start states of any difficulty and some of them twice."""
    trainable = sorted(eased._tasks.difficulty(0, seed) for seed in eased.values[0].trainable)
    assert trainable[0] == 4 and len(trainable) > 24
    played = rollouts(eased)
    means = [statistics.fmean(each) for each in played]
    assert sorted(played[0]) == trainable[:8]  # all that it asks for always win: the next ones are played
    assert means[0] <= means[1] <= means[2] < means[3] < means[5] and means[5] > means[0] + 2
    for k in range(0, 6 * 8, 8):
        assert len({one.seed for one in eased.played[k : k + 8]}) == 8
    assert logged(eased, "difficulty") == pytest.approx(means[:6])  # while the curriculum lasts


def test_a_run_that_is_resumed_within_its_curriculum_ends_where_an_unbroken_one_does(eased: Any) -> None:
    folder = Path(eased.args.output_dir)
    resumed = astar(folder, graded, **CURRICULUM, save_strategy="steps", save_steps=3)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    assert [one.seed for one in resumed.played] == [one.seed for one in eased.played[3 * 8 :]]
    end = parameters(eased)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())


def test_refills_of_a_curriculum_are_exchanged_for_others_than_the_rollout_had(tmp_path: Path) -> None:
    trainer = astar(tmp_path, graded, **CURRICULUM, num_generations=2, max_refills=3)
    trainer.train()
    count = int(logged(trainer, "filter/trajectories_sampled")[0]) // 2
    seeds = [one.seed for one in trainer.played[: 2 * count : 2]]  # of the first update, 4 groups a rollout
    assert count > 4 and len(set(seeds)) == count
    trainable = sorted(trainer._tasks.difficulty(0, seed) for seed in trainer.values[0].trainable)
    assert sorted(trainer._tasks.difficulty(0, seed) for seed in seeds) == trainable[:count]


def test_every_process_knows_the_start_states_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start state that another process plays is not taken once more, and parts of a group stay one."""
    trainer = astar(tmp_path, graded, **CURRICULUM)
    trainer.estimate_values()
    rows = [trainer._tasks.row(0, seed) for seed in trainer._tasks.rows["seed"][:8]]
    whole = trainer._with_trainable_starts(rows)
    everyone = [(0, row["seed"]) for row in rows]
    monkeypatch.setattr(module, "gather_object", lambda own: everyone)
    parts = []
    for process in (0, 1):
        monkeypatch.setattr(type(trainer.accelerator), "process_index", property(lambda self, process=process: process))
        parts += trainer._with_trainable_starts(rows[4 * process : 4 * process + 4])
    assert parts == whole and len({row["seed"] for row in whole}) == 8
