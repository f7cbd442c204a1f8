"""The logged figures of a rollout and of a micro-batch: pure functions on what was played, kept and scored."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch

from ragen_trl.algorithms.filtering import group_std
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.system.float64 import in_float64


def rollout_figures(
    rollout: RolloutBatch, envs: Sequence[str], functions: Sequence[str], scale: str
) -> dict[str, float]:
    """What is logged of a rollout: means over trajectories, and TRL's figures of lengths and rewards.

    With several environments there are also means of each that was played (``"Sokoban-v0/success"``). ``functions`` are
    the names of the reward functions, ``scale`` is ``scale_rewards``. Only ``rollout/env_failures`` knows of episodes
    that ended because an environment crashed or hung.
    """
    figures: dict[str, float] = {}
    for name in ("", *(dict.fromkeys(envs) if len(set(envs)) > 1 else ())):  # "": all environments together
        played = [one.measures for one in rollout.summaries if name in ("", one.env) and not one.failed]
        prefix = f"{name}/" if name else ""
        figures |= {prefix + key: fmean(one[key] for one in played) for key in (played[0] if played else {})}
    figures["rollout/env_failures"] = float(sum(summary.failed for summary in rollout.summaries))
    sound = [summary for summary in rollout.summaries if not summary.failed] or rollout.summaries
    lengths = torch.tensor([summary.measures["reply_tokens"] for summary in sound], dtype=torch.float64)
    ended = torch.tensor([not summary.cut for summary in sound])
    weights = rollout.weights.double().cpu()
    return {
        **figures,
        **length_figures(lengths, ended),
        **reward_figures(rollout.rewards.double().cpu(), functions, weights, rollout.group_size, scale),
    }


def length_figures(lengths: torch.Tensor, ended: torch.Tensor) -> dict[str, float]:
    """TRL's figures of completions: (N,) sampled tokens of each trajectory, and whether its last reply was not cut."""
    finished = lengths[ended] if bool(ended.any()) else torch.zeros(1, dtype=lengths.dtype)
    figures = {"completions/clipped_ratio": 1 - ended.double().mean().item()}
    for name, values in (("length", lengths), ("terminated_length", finished)):
        figures[f"completions/mean_{name}"] = values.mean().item()
        figures[f"completions/min_{name}"] = values.min().item()
        figures[f"completions/max_{name}"] = values.max().item()
    return figures


def reward_figures(
    rewards: torch.Tensor, names: Sequence[str], weights: torch.Tensor, group_size: int, scale: str
) -> dict[str, float]:
    """TRL's figures of (N, F) rewards, NaN where a function does not apply; groups are consecutive rows.

    ``scale`` "batch" compares all rows, "group" and "none" the rows of a group.
    """
    figures = {}
    for name, column in zip(names, rewards.T, strict=True):
        figures[f"rewards/{name}/mean"] = column.nanmean().item()
        figures[f"rewards/{name}/std"] = _std(column)
    total = (rewards * weights).nansum(dim=1)
    total[rewards.isnan().all(dim=1)] = math.nan
    groups = [total] if scale == "batch" else list(total.split(group_size))
    alike = [float(len(group)) * (_std(group) < 1e-8 or group_size == 1 and scale != "batch") for group in groups]
    return figures | {
        "reward": total.nanmean().item(),
        "reward_std": _std(total),
        "frac_reward_zero_std": sum(alike) / len(total),
    }


def _std(values: torch.Tensor) -> float:
    """The sample standard deviation without NaN; NaN for fewer than two values, as in TRL."""
    known = values[~values.isnan()]
    return known.std().item() if len(known) > 1 else math.nan


def filter_metrics(rollout: RolloutBatch, kept: Sequence[int]) -> dict[str, float]:
    """What the filter saw and did. Counts include the trajectories of refills and of dropped groups."""
    counts = {
        "filter/kept_groups": float(len(kept)),
        "filter/trajectories_sampled": float(len(rollout.summaries)),
        "filter/trajectories_used": float(len(kept) * rollout.group_size),
        "filter/skipped": float(not kept),
    }
    if rollout.group_size == 1:  # a single trajectory has no spread
        return counts
    stds = group_std(rollout.returns, rollout.group_size)
    return {
        "filter/in_group_std": stds.mean().item(),
        "filter/kept_in_group_std": stds[list(kept)].mean().item() if kept else 0.0,
        **counts,
    }


class UpdateMeans:
    """Means over an update, of all its micro-batches on all processes, whatever their sizes."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}  # (2,) float64: the sum, and what it is divided by
        self._largest: dict[str, float] = {}
        self._loss: torch.Tensor | None = None

    def add(self, columns: Mapping[str, torch.Tensor], weights: torch.Tensor) -> None:
        """Add a micro-batch: columns, and weights of the same shape, 0 where a place does not count."""
        used = weights.bool()
        weight = in_float64(weights[used])
        for name, column in columns.items():
            here = torch.stack([(in_float64(column.detach()[used]) * weight).sum(), weight.sum()])
            self._sums[name] = self._sums.get(name, torch.zeros_like(here)) + here

    def add_loss(self, loss: torch.Tensor) -> None:
        """Add a micro-batch's part of the loss, before bonuses."""
        here = loss.detach().float()
        self._loss = here if self._loss is None else self._loss + here

    def add_largest(self, name: str, value: float) -> None:
        """Keep the largest value of a name; it is the same on all processes."""
        self._largest[name] = max(value, self._largest.get(name, value))

    def taken(self, total: Callable[[torch.Tensor], torch.Tensor], processes: int) -> dict[str, float]:
        """All means, and ``policy_loss``; forgets them. ``total`` adds a tensor up over all processes."""
        figures = dict(self._largest)
        if self._sums:
            sums = total(torch.stack(list(self._sums.values()))).tolist()
            figures |= {name: value / count for name, (value, count) in zip(self._sums, sums, strict=True) if count}
        if self._loss is not None:
            figures["policy_loss"] = total(self._loss).item() / processes
        self._sums, self._largest, self._loss = {}, {}, None
        return figures
