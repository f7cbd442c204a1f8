"""RolloutBatch: returns per turn, narrowing to groups, and joining rollouts, on simulated processes; extra rewards."""

import math
import pickle
import random
import threading
from typing import Any

import pytest

from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary, warn_of_unlike_starts
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import made_up, rollout_of

NAN = math.nan


def played_rows(count: int, first_seed: int = 0) -> list[Trajectory]:
    """Trajectories that their seeds tell apart, of 1 to 3 turns."""
    rng = random.Random(first_seed)

    def turns() -> list[tuple[int, int, float]]:
        return [(rng.randint(1, 3), rng.randint(1, 4), rng.uniform(-1, 1)) for _ in range(rng.randint(1, 3))]

    return [made_up(*turns(), seed=first_seed + row) for row in range(count)]


def seeds(rollout: RolloutBatch) -> list[int]:
    return [trajectory.seed for trajectory in rollout.trajectories]


def test_extra_rewards_go_to_the_last_turn_by_hand() -> None:
    """Weights 2 and 0.5: 2 · 1.5 + 0.5 · 2 = 4, of which 2 · 0.5 in the first turn."""
    played = [made_up((1, 1, 0.5), (1, 1, 1.0)), made_up((1, 1, -0.1))]
    rollout = rollout_of(played, 2, extra=[[2.0, 0.0]], weights=[2.0, 0.5])
    rewards, mask = rollout.turn_rewards()
    assert rollout.returns.tolist() == pytest.approx([4.0, -0.2])
    assert rewards.flatten().tolist() == pytest.approx([1.0, 3.0, -0.2, 0.0])
    assert mask.tolist() == [[True, True], [True, False]]


def test_a_missing_score_is_missing_and_not_0() -> None:
    """It would be the best of its group here. The mean of the group's others stands in, else of all, else 0."""
    played = [made_up((1, 1, 0.0)) for _ in range(6)]
    scores = [[-1.0, NAN, -3.0, NAN, NAN, NAN], [NAN] * 6]
    rollout = rollout_of(played, 3, extra=scores, weights=[1.0, 1.0, 1.0])
    assert rollout.returns.tolist() == [-1.0, -2.0, -3.0, -2.0, -2.0, -2.0]


def test_unlike_starts_of_a_group_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def summary(env: str, seed: int, state: str) -> TrajectorySummary:
        return TrajectorySummary(env, 0, seed, (), False, (state,))

    alike = [summary("alike", 1, "a"), summary("alike", 1, "a"), summary("alike", 2, "b")]
    unlike = [summary("unlike", seed, state) for seed, state in ((1, "a"), (1, "b"), (2, "c"), (2, "d"))]
    for _ in range(2):
        warn_of_unlike_starts(alike)
        warn_of_unlike_starts(unlike)
    assert [record.args for record in caplog.records] == [("unlike",)]


@pytest.mark.parametrize("process", [0, 1])
def test_selection_by_hand_of_groups_that_straddle_processes(process: int) -> None:
    """Three groups of 4 on two processes: the first holds rows 0 to 5, the second 6 to 11. Group 0 and 2 are kept."""
    chosen = rollout_of(played_rows(12), 4, processes=2, process=process).select([0, 2])
    assert [summary.seed for summary in chosen.summaries] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert chosen.ranks == (0, 0, 0, 0, 1, 1, 1, 1)
    assert seeds(chosen) == ([0, 1, 2, 3] if process == 0 else [8, 9, 10, 11])
    assert chosen.local_indices == ([0, 1, 2, 3] if process == 0 else [4, 5, 6, 7])
    assert chosen.batch["completion_mask"].any(dim=1).tolist() == [True] * 4


def balanced(played: list[Trajectory], kept: list[int], processes: int) -> list[RolloutBatch]:
    """What every process holds after groups of 4 were selected and rows moved, as if the processes ran side by side."""
    chosen = [rollout_of(played, 4, processes, process).select(kept) for process in range(processes)]
    sent: list[list[tuple[int, Trajectory]]] = []

    def asked(leaving: list[Any]) -> list[Any]:
        sent.append(leaving)
        return leaving

    for one in chosen:
        one.balanced(processes, asked)
    everything = [item for leaving in sent for item in leaving]
    return [one.balanced(processes, lambda _: everything) for one in chosen]


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("kept", [[0], [1, 2], [3], [0, 1, 2, 3], [0, 3], []])
def test_processes_have_equally_many_trajectories_up_to_one(kept: list[int], processes: int) -> None:
    played = played_rows(16)
    after = balanced(played, kept, processes)
    counts = [len(one.trajectories) for one in after]
    assert sum(counts) == 4 * len(kept) and max(counts) - min(counts) <= 1
    for process, one in enumerate(after):
        assert one.trajectories == [played[one.summaries[row].seed] for row in one.local_indices]
        assert one.ranks.count(process) == len(one.trajectories)
        assert len(one.batch["prompt_ids"]) == len(one.trajectories)
        values = one.in_order([seed for each in after for seed in seeds(each)])
        assert values == [summary.seed for summary in one.summaries]


def test_what_cannot_be_sent_stays_where_it_was_played() -> None:
    """Regression: a lock in an environment's info ended runs on several processes as soon as a row had to move."""
    played = played_rows(16)
    for trajectory in played:
        for turn in trajectory.turns:
            turn.info.update(lock=threading.Lock(), page="start")  # type: ignore[attr-defined]
    first, second = balanced(played, [0, 1], 2)
    assert [set(t.turns[-1].info) for t in first.trajectories] == [{"lock", "page"}] * 4
    assert [set(t.turns[-1].info) for t in second.trajectories] == [{"page"}] * 4
    pickle.dumps(second.trajectories)


def test_selected_rows_of_joined_rollouts_are_those_of_their_trajectories() -> None:
    """A refill's trajectories come after the first rollout's on every process."""
    parts = [played_rows(8, 0), played_rows(8, 100)]
    joined = RolloutBatch.joined([rollout_of(part, 4, 2, 1) for part in parts])
    chosen = joined.select([1, 2])  # group 1 is this process's, group 2 the other's
    assert seeds(chosen) == [4, 5, 6, 7]
    assert chosen.ranks == (1, 1, 1, 1, 0, 0, 0, 0)
    first = [list(t.token_ids[len(t.turns[0].prompt_ids) :]) for t in chosen.trajectories]
    mask = chosen.batch["completion_mask"].bool()
    assert [ids[used].tolist() for ids, used in zip(chosen.batch["completion_ids"], mask, strict=True)] == first
