"""Who wants to look at what was sampled: the monitor of collapse, the recorder of trajectories, a script's own.

An observer sees each rollout once, after the filter and the estimator have spoken and before anything is trained on it.
It is called on every process, with that process's trajectories; what all processes know is in the rollout. Observers
look and do not change: a trainer with one and a trainer without take the same steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.system.old_names import former_attribute


@dataclass(frozen=True)
class RolloutEvent:
    """One rollout as an observer sees it.

    Attributes:
        step: Optimiser steps before it; the update that learns from it is the next one.
        rollout: All that was sampled, refills and dropped groups included: L trajectories here, of B.
        kept: Indices of the groups that are trained on.
        advantages: For each of the L trajectories one number a sampled token, over all turns; ``None`` if its group was
            dropped.
    """

    step: int
    rollout: RolloutBatch
    kept: tuple[int, ...]
    advantages: tuple[tuple[float, ...] | None, ...]

    experience = former_attribute("experience", "rollout")


class Observer(Protocol):
    """Anything with this method; ``trainer.observers.append(...)`` makes it one."""

    def on_rollout(self, event: RolloutEvent) -> None:
        """Look at a rollout."""


def observe(
    step: int, rollout: RolloutBatch, kept: Sequence[int], chosen: RolloutBatch, advantages: torch.Tensor | None
) -> RolloutEvent:
    """Put together what observers are shown.

    Args:
        step: Optimiser steps so far.
        rollout: Everything sampled.
        kept: Indices of the kept groups.
        chosen: The kept groups.
        advantages: (B,) one for each of all chosen trajectories, (L, T) for completion tokens of those chosen here, or
            ``None`` if none was kept.
    """
    groups = set(kept)
    told = iter([] if advantages is None else _by_token(chosen, advantages))
    by_trajectory = [next(told) if row // rollout.group_size in groups else None for row in rollout.local_indices]
    return RolloutEvent(step, rollout, tuple(kept), tuple(by_trajectory))


def _by_token(chosen: RolloutBatch, advantages: torch.Tensor) -> list[tuple[float, ...]]:
    if advantages.ndim == 1:
        values = advantages[chosen.local_indices].tolist()
        return [(value,) * played.num_reply_tokens for value, played in zip(values, chosen.trajectories, strict=True)]
    here = len(chosen.trajectories)
    mask = (chosen.batch["completion_mask"] * chosen.batch["tool_mask"])[:here].bool()
    return [tuple(row[sampled].tolist()) for row, sampled in zip(advantages, mask, strict=True)]
