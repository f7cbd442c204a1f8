"""Observers of rollouts: the collapse monitor, the recorder of trajectories, or one of your own.

A trainer shows them each rollout once, on every process, before any training on it; they change no step of it.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import TrainerCallback

from ragen_trl.batching.batch import sampled_mask
from ragen_trl.batching.rollout_batch import RolloutBatch

logger = logging.getLogger(__name__)


@contextmanager
def logged_failure(what: str) -> Iterator[None]:
    """For what is written beside a run: its failure is logged as a warning and ends nothing."""
    try:
        yield
    except Exception as error:
        logger.warning("%s: %r", what, error)


def guard_trackers(callbacks: Sequence[TrainerCallback]) -> None:
    """Let no tracker of ``report_to`` end a training once it has begun; what it raises is logged."""
    for callback in callbacks:
        if type(callback).__module__.startswith("transformers.integrations"):
            for event in ("on_step_end", "on_log", "on_evaluate", "on_save", "on_train_end"):
                guarded = logged_failure(f"{type(callback).__name__} failed")
                setattr(callback, event, guarded(getattr(callback, event)))


class TeachCritic(TrainerCallback):
    """Lets a trainer's critic learn when the policy has taken its step and its gradients are gone.

    A hook that breaks off before that leaves the critic as it was, so the next training does not teach it twice.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = weakref.proxy(trainer)  # which holds this object

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Transformers logs the row of this step afterwards, the critic's figures in it."""
        self._trainer.teach_critic()


@dataclass(frozen=True)
class RolloutEvent:
    """One rollout, as observers see it.

    Attributes:
        step: Optimiser steps so far; the next one is the first to learn from this rollout.
        rollout: All that was sampled, refills and dropped groups included: L of B trajectories are on this process.
        kept: Indices of the groups that are trained on.
        advantages: For each of the L trajectories one number for each sampled token, over all turns; ``None`` if its
            group was dropped.
    """

    step: int
    rollout: RolloutBatch
    kept: tuple[int, ...]
    advantages: tuple[tuple[float, ...] | None, ...]


class Observer(Protocol):
    """Any object with this method; add it with ``trainer.observers.append(...)``."""

    def on_rollout(self, event: RolloutEvent) -> None:
        """Called once for each rollout."""


def observe(
    step: int,
    rollout: RolloutBatch,
    kept: Sequence[int],
    chosen: RolloutBatch,
    advantages: torch.Tensor | None,
    gather: Callable[[list[Any]], list[Any]],
) -> RolloutEvent:
    """The event that observers are shown.

    ``chosen`` are the kept groups, of which some trajectories may have moved to another process. ``advantages`` are
    (B,) of all chosen trajectories, (L, T) for the completion tokens of those on this process, or ``None`` if no group
    was kept.
    """
    groups, by_row = set(kept), dict[int, tuple[float, ...]]()
    if advantages is not None:
        masks = sampled_mask(chosen.batch)
        here = advantages[chosen.local_indices][:, None].expand(masks.shape) if advantages.ndim == 1 else advantages
        by_token = [tuple(row[sampled].tolist()) for row, sampled in zip(here, masks, strict=True)]
        rows = [row for row in range(len(rollout.summaries)) if row // rollout.group_size in groups]
        by_row = dict(zip(rows, chosen.in_order(gather(by_token)), strict=True))
    return RolloutEvent(step, rollout, tuple(kept), tuple(by_row.get(row) for row in rollout.local_indices))
