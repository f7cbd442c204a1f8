"""RolloutBatch: returns per turn, narrowing to groups, and joining rollouts, on simulated processes."""

import math
import pickle
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary, balanced_ranks
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
    """Weights 2 and 0.5: 2 · 1.5 + 0.5 · 2 = 4, of which 2 · 0.5 in the first turn; NaN adds nothing."""
    played = [made_up((1, 1, 0.5), (1, 1, 1.0)), made_up((1, 1, -0.1))]
    rollout = rollout_of(played, 2, extra=[[2.0, NAN]], weights=[2.0, 0.5])
    rewards, mask = rollout.turn_rewards()
    assert rollout.returns.tolist() == pytest.approx([4.0, -0.2])
    assert rewards.flatten().tolist() == pytest.approx([1.0, 3.0, -0.2, 0.0])
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("seed", range(5))
def test_the_rewards_of_turns_sum_to_the_return(seed: int) -> None:
    rng = random.Random(seed)
    played = played_rows(12, seed)
    extra = [[rng.choice([NAN, rng.uniform(-2, 2)]) for _ in played] for _ in range(2)]
    weights = [rng.uniform(-1, 2) for _ in range(3)]
    rollout = rollout_of(played, 4, extra=extra, weights=weights)
    rewards, mask = rollout.turn_rewards()
    for row, trajectory in enumerate(played):
        given = [trajectory.episode_return, extra[0][row], extra[1][row]]
        expected = sum(weight * reward for weight, reward in zip(weights, given, strict=True) if reward == reward)
        assert rewards[row].sum().item() == pytest.approx(expected, abs=1e-5)
        assert rewards[row, 0].item() == pytest.approx(weights[0] * trajectory.turns[0].reward, abs=1e-5) or (
            len(trajectory.turns) == 1
        )
        assert mask[row].sum().item() == len(trajectory.turns)
    assert bool((rewards[~mask] == 0).all())


def test_equal_states_have_equal_anchors_and_others_have_not() -> None:
    played = made_up((1, 1, 0.0), (1, 1, 0.0), (1, 1, 0.5), states=["start", "left", "start"], seed=7)
    summary = TrajectorySummary.of(played, "lake", 3)
    assert summary.anchors[0] == summary.anchors[2] != summary.anchors[1]
    assert (summary.env, summary.task, summary.seed, summary.turn_rewards) == ("lake", 3, 7, (0.0, 0.0, 0.5))


def test_each_group_belongs_to_the_environment_of_its_members() -> None:
    rollout = rollout_of(played_rows(6), 2, envs=["a", "a", "b", "b", "a", "a"])
    assert rollout.num_groups == 3
    assert rollout.group_tasks == [0, 1, 0]


@pytest.mark.parametrize("process", [0, 1])
def test_selection_by_hand_of_groups_that_straddle_processes(process: int) -> None:
    """Three groups of 4 on two processes: the first holds rows 0 to 5, the second 6 to 11. Group 0 and 2 are kept."""
    chosen = rollout_of(played_rows(12), 4, processes=2, process=process).select([0, 2])
    assert [summary.seed for summary in chosen.summaries] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert chosen.ranks == (0, 0, 0, 0, 1, 1, 1, 1)
    assert seeds(chosen) == ([0, 1, 2, 3] if process == 0 else [8, 9, 10, 11])
    assert chosen.local_indices == ([0, 1, 2, 3] if process == 0 else [4, 5, 6, 7])
    assert chosen.batch["completion_mask"].any(dim=1).tolist() == [True] * 4


@pytest.mark.parametrize("kept", [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2], [3], []])
def test_a_selection_keeps_rows_trajectories_and_summaries_together(kept: list[int]) -> None:
    played = played_rows(16)
    chosen = [rollout_of(played, 4, 2, process).select(kept) for process in (0, 1)]
    assert sorted(seeds(chosen[0]) + seeds(chosen[1])) == [row for row in range(16) if row // 4 in kept]
    for one in chosen:
        assert [played[seed] for seed in seeds(one)] == one.trajectories
        lengths = one.batch["completion_mask"].sum(dim=1).tolist()
        assert lengths == [len(t.token_ids) - len(t.turns[0].prompt_ids) for t in one.trajectories]
        assert torch.equal(one.returns, chosen[0].returns)
        assert [one.summaries[row].seed for row in one.local_indices] == seeds(one)


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


def test_kept_rows_move_to_processes_that_have_fewer_by_hand() -> None:
    """Groups 0 and 1 of 4 on two processes are all on the first: its last four rows move to the second."""
    first, second = balanced(played_rows(16), [0, 1], 2)
    assert first.ranks == second.ranks == (0, 0, 0, 0, 1, 1, 1, 1)
    assert (seeds(first), seeds(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first.local_indices, second.local_indices) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert first.most_rows == second.most_rows == 4


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("kept", [[0], [1, 2], [3], [0, 1, 2, 3], [0, 3], []])
def test_no_process_has_more_than_its_share_and_as_few_rows_as_possible_move(kept: list[int], processes: int) -> None:
    played = played_rows(16)
    before = rollout_of(played, 4, processes).select(kept).ranks
    after = balanced(played, kept, processes)
    counts = [len(one.trajectories) for one in after]
    share = -(-4 * len(kept) // processes)
    assert sum(counts) == 4 * len(kept) and max(counts) == share
    moved = sum(one != other for one, other in zip(before, after[0].ranks, strict=True))
    assert moved == sum(max(0, before.count(process) - share) for process in range(processes))
    for process, one in enumerate(after):
        assert one.trajectories == [played[one.summaries[row].seed] for row in one.local_indices]
        assert one.ranks.count(process) == len(one.trajectories)
        assert len(one.batch["prompt_ids"]) == len(one.trajectories)
        values = one.in_order([seed for each in after for seed in seeds(each)])
        assert values == [summary.seed for summary in one.summaries]


def test_what_cannot_be_pickled_stays_where_it_was_played() -> None:
    """Regression: a lock in an environment's info ended runs on several processes as soon as a row had to move."""
    played = played_rows(16)
    for trajectory in played:
        for turn in trajectory.turns:
            turn.info.update(lock=threading.Lock(), page="start")  # type: ignore[attr-defined]
    first, second = balanced(played, [0, 1], 2)
    assert [set(t.turns[-1].info) for t in first.trajectories] == [{"lock", "page"}] * 4
    assert [set(t.turns[-1].info) for t in second.trajectories] == [{"page"}] * 4
    pickle.dumps(second.trajectories)


def test_nothing_is_exchanged_where_nothing_has_to_move() -> None:
    def nobody(_: list[Any]) -> list[Any]:
        raise AssertionError

    rollout = rollout_of(played_rows(16), 4, 2, 1)
    assert rollout.balanced(2, nobody) is rollout


def test_contexts_that_were_rebuilt_are_rows_to_share() -> None:
    """Two trajectories of three rows and three of one, all on the first of three processes: 3, 3 and 3 rows."""
    assert balanced_ranks([3, 1, 1, 3, 1], [0] * 5, processes=3) == (0, 2, 2, 1, 2)


def loads(rows: list[int], ranks: Sequence[int], processes: int) -> list[int]:
    """Rows on each process."""
    return [sum(count for count, rank in zip(rows, ranks, strict=True) if rank == here) for here in range(processes)]


@pytest.mark.parametrize("most", [1, 5])
def test_shares_and_moves_are_what_the_docstring_promises(most: int) -> None:
    rng = random.Random(0)
    for _ in range(300):
        processes = rng.randint(2, 5)
        rows = [rng.randint(1, most) for _ in range(rng.randint(1, 20))]
        before = [rng.randrange(processes) for _ in rows]
        after = balanced_ranks(rows, before, processes)
        share = math.ceil(sum(rows) / processes)
        assert max(loads(rows, after, processes)) < share + max(rows)
        if most == 1:
            moves = sum(one != other for one, other in zip(before, after, strict=True))
            assert moves == sum(max(0, load - share) for load in loads(rows, before, processes))


def test_selecting_every_group_keeps_everything() -> None:
    rollout = rollout_of(played_rows(8), 4)
    chosen = rollout.select([0, 1])
    assert chosen.trajectories == rollout.trajectories
    assert all(torch.equal(chosen.batch[key], value) for key, value in rollout.batch.items())


@pytest.mark.parametrize("process", [0, 1])
def test_joined_rollouts_keep_rows_and_trajectories_together(process: int) -> None:
    parts = [played_rows(8, 0), played_rows(8, 100), played_rows(8, 200)]
    joined = RolloutBatch.joined([rollout_of(part, 4, 2, process) for part in parts])
    first = 4 * process
    assert joined.ranks == (0, 0, 0, 0, 1, 1, 1, 1) * 3
    assert seeds(joined) == [start + first + row for start in (0, 100, 200) for row in range(4)]
    assert [joined.summaries[row].seed for row in joined.local_indices] == seeds(joined)
    assert joined.num_groups == 6
    returns = [joined.returns[row].item() for row in joined.local_indices]
    assert returns == pytest.approx([trajectory.episode_return for trajectory in joined.trajectories])


def test_joined_rollouts_are_padded_to_the_widest() -> None:
    """Prompts on the left, completions on the right."""
    short, long = [made_up((1, 1, 0.0))] * 2, [made_up((3, 1, 0.0), (1, 2, 0.0))] * 2
    batch = RolloutBatch.joined([rollout_of(short, 2), rollout_of(long, 2)]).batch
    assert batch["prompt_ids"].tolist() == [[0, 0, 1]] * 2 + [[1, 2, 3]] * 2
    assert batch["prompt_mask"].tolist() == [[0, 0, 1]] * 2 + [[1, 1, 1]] * 2
    assert batch["completion_ids"].tolist() == [[2, 0, 0, 0]] * 2 + [[4, 5, 6, 7]] * 2
    assert batch["completion_mask"].tolist() == [[1, 0, 0, 0]] * 2 + [[1] * 4] * 2
    assert (batch["completion_mask"] * batch["tool_mask"]).tolist() == [[1, 0, 0, 0]] * 2 + [[1, 0, 1, 1]] * 2
    assert batch["sampling_per_token_logps"].flatten().tolist() == pytest.approx(
        [-0.02, 0, 0, 0] * 2 + [-0.04, 0, -0.06, -0.07] * 2
    )


def test_a_single_rollout_joined_is_itself() -> None:
    rollout = rollout_of(played_rows(4), 2)
    assert RolloutBatch.joined([rollout]) is rollout


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
