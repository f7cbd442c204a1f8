"""The data of one update: this process's trajectories, and a summary of all processes' trajectories.

Filters and advantages compare trajectories that other processes may have played, so each process has the returns and a
`TrajectorySummary` of every trajectory and takes the same decisions. Trajectories stay on the process that played them,
until a filter leaves one process more of them than another.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch

from ragen_trl.batching.batch import trajectory_batch
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.episode import measure
from ragen_trl.trajectory import Trajectory, sendable

logger = logging.getLogger(__name__)
_SAID: set[str] = set()  # environments of which it was said that a seed does not fix the start

T = TypeVar("T")


@dataclass(frozen=True)
class TrajectorySummary:
    """A trajectory without its tokens.

    ``task`` is the index of its environment in the run, since several may share a name; ``turn_rewards`` are the
    environment's, format penalties included; ``anchors`` digests of its observation before each turn, equal where the
    state is the same as far as the environment shows it (GiGPO). ``measures`` are logged as means, ``tokens`` are those
    of prompts and replies. ``cut``: a token limit cut the last reply; ``failed``: the environment crashed or hung.
    """

    env: str
    task: int
    seed: int
    turn_rewards: tuple[float, ...]
    success: bool
    anchors: tuple[str, ...]
    measures: Mapping[str, float] = field(default_factory=dict)
    tokens: int = 0
    cut: bool = False
    failed: bool = False

    @classmethod
    def of(cls, trajectory: Trajectory, env: str, task: int) -> "TrajectorySummary":
        """The summary that other processes get."""
        return cls(
            env,
            task,
            trajectory.seed,
            turn_rewards=tuple(turn.reward for turn in trajectory.turns),
            success=trajectory.success,
            anchors=tuple(hashlib.blake2b(turn.state.encode(), digest_size=8).hexdigest() for turn in trajectory.turns),
            measures=measure(trajectory),
            tokens=sum(len(turn.prompt_ids) for turn in trajectory.turns) + trajectory.num_reply_tokens,
            cut=trajectory.turns[-1].cut,
            failed=trajectory.limit in FAILURES,
        )


@dataclass(frozen=True)
class RolloutBatch:
    """One rollout, or several joined: B trajectories on all processes together, L of them here.

    Attributes:
        trajectories: This process's trajectories, length L.
        rank: Index of this process.
        ranks: Index of the process that has each of the B trajectories; ascending within a rollout until `balanced`.
        rewards: (B, F) rewards of the environment (first) and of the extra reward functions, unweighted; NaN where a
            function gave none, and all NaN where the environment failed.
        weights: (F,) weights of the reward functions.
        summaries: Summaries of all B trajectories, groups contiguous.
        group_size: G; B is a multiple of it.
        pad_id: Pads token ids.
    """

    trajectories: list[Trajectory]
    rank: int
    ranks: tuple[int, ...]
    rewards: torch.Tensor
    weights: torch.Tensor
    summaries: list[TrajectorySummary]
    group_size: int
    pad_id: int

    @cached_property
    def batch(self) -> dict[str, Any]:
        """TRL's tensors of `trajectories`, L rows: see ``batch.trajectory_batch``."""
        return trajectory_batch(self.trajectories, self.pad_id, self.rewards.device)

    @property
    def returns(self) -> torch.Tensor:
        """(B,) raw returns: the weighted sum of the environment's return and the extra rewards.

        Where a function gave no score, its mean over the others of the group stands in, else over all, which prefers
        nothing; TRL takes 0, which may be the best of a group. NaN for an episode whose environment failed: it has no
        outcome, is compared with nothing and not trained on.
        """
        grouped = self.rewards.view(-1, self.group_size, self.rewards.shape[1])
        means = grouped.nanmean(dim=1, keepdim=True)
        means = torch.where(means.isnan(), self.rewards.nanmean(dim=0), means).nan_to_num(nan=0.0)
        filled = torch.where(grouped.isnan(), means, grouped).view_as(self.rewards)
        return (filled * self.weights).sum(dim=1).masked_fill(self.rewards.isnan().all(dim=1), torch.nan)

    @property
    def local_indices(self) -> list[int]:
        """Indices of `trajectories` among all B, length L."""
        return [row for row, rank in enumerate(self.ranks) if rank == self.rank]

    def in_order(self, gathered: Sequence[T]) -> list[T]:
        """Put values gathered process by process, one per trajectory, into the order of the B trajectories."""
        by_process = sorted(range(len(self.ranks)), key=lambda row: self.ranks[row])
        everyone = dict(zip(by_process, gathered, strict=True))
        return [everyone[row] for row in range(len(everyone))]

    @property
    def num_groups(self) -> int:
        """P = B / G."""
        return len(self.summaries) // self.group_size

    @property
    def group_tasks(self) -> list[int]:
        """Index of each group's environment in the run, length P."""
        return [summary.task for summary in self.summaries[:: self.group_size]]

    @property
    def completion_length(self) -> int:
        """T, the width of the completion tensors."""
        return int(self.batch["completion_ids"].shape[1])

    def turn_rewards(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, K) rewards per turn, and (B, K) bool, true where a turn was played. A row's rewards sum to its return.

        The extra reward functions rate a whole trajectory; their reward is added to its last turn. The row of an
        episode whose environment failed has no turn.
        """
        width = max((len(summary.turn_rewards) for summary in self.summaries), default=0)
        returns = self.returns
        rewards = returns.new_zeros((len(self.summaries), width))
        mask = torch.zeros((len(self.summaries), width), dtype=torch.bool, device=rewards.device)
        for row, summary in enumerate(self.summaries):
            count = len(summary.turn_rewards)
            if summary.failed:
                continue
            rewards[row, :count] = rewards.new_tensor(summary.turn_rewards) * self.weights[0]
            mask[row, :count] = True
            rewards[row, count - 1] += returns[row] - rewards[row].sum()
        return rewards, mask

    def select(self, groups: Sequence[int]) -> "RolloutBatch":
        """Keep only these groups, in the order of their indices. Every trajectory stays on its process."""
        kept = set(groups)
        chosen = [row for row in range(len(self.summaries)) if row // self.group_size in kept]
        here = [index for index, row in enumerate(self.local_indices) if row // self.group_size in kept]
        return replace(
            self,
            trajectories=[self.trajectories[index] for index in here],
            ranks=tuple(self.ranks[row] for row in chosen),
            rewards=self.rewards[chosen],
            summaries=[self.summaries[row] for row in chosen],
        )

    def balanced(self, processes: int, gather: Callable[[list[Any]], list[Any]]) -> "RolloutBatch":
        """Deal trajectories out in order, so processes have equally many, up to one; all decide the same.

        They exchange only what moves. ``gather`` joins the lists of all processes (``accelerate.utils.gather_object``).
        """
        count = len(self.summaries)
        ranks = tuple(row * processes // count for row in range(count))
        if ranks == self.ranks:
            return self
        held = list(zip(self.local_indices, self.trajectories, strict=True))
        arrived = gather([(row, sendable(trajectory)) for row, trajectory in held if ranks[row] != self.rank])
        here = {row: trajectory for row, trajectory in held if ranks[row] == self.rank}
        here |= {row: trajectory for row, trajectory in arrived if ranks[row] == self.rank}
        return replace(self, ranks=ranks, trajectories=[here[row] for row in sorted(here)])

    @classmethod
    def joined(cls, rollouts: Sequence["RolloutBatch"]) -> "RolloutBatch":
        """Join several rollouts; groups of the first rollout come first."""
        if len(rollouts) == 1:
            return rollouts[0]
        return replace(
            rollouts[0],
            trajectories=[trajectory for rollout in rollouts for trajectory in rollout.trajectories],
            ranks=tuple(rank for rollout in rollouts for rank in rollout.ranks),
            rewards=torch.cat([rollout.rewards for rollout in rollouts]),
            summaries=[summary for rollout in rollouts for summary in rollout.summaries],
        )


def warn_of_unlike_starts(summaries: Sequence[TrajectorySummary]) -> None:
    """Say once of an environment that episodes of one seed began in different states: comparing them means nothing."""
    starts: dict[tuple[int, int], str] = {}
    for one in summaries:
        alike = starts.setdefault((one.task, one.seed), one.anchors[0]) == one.anchors[0]
        if not alike and one.env not in _SAID:
            _SAID.add(one.env)
            logger.warning(
                "%s: episodes with the same seed began in different states, so a group compares what cannot be "
                "compared; let reset draw the start from its seed alone",
                one.env,
            )
