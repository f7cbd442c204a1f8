"""The figures of one evaluation, over all of its rows: no batch counts more than its share of the rows.

Figures of which only a number for each batch is known (vLLM's ratios, ``log_metric``) are weighted by its rows.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from ragen_trl.system.float64 import float64_tensor, in_float64
from ragen_trl.trainers.metrics import rollout_means


class EvaluationTotals:
    """What the batches of one evaluation of so many ``rows`` have measured so far, on all processes.

    Attributes:
        seen: Rows of all processes that are finished.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.seen = 0
        self._played: Counter[str] = Counter()
        self._rewards: list[torch.Tensor] = []
        self._lengths: list[torch.Tensor] = []
        self._ended: list[torch.Tensor] = []
        self._batches: list[tuple[float, dict[str, float]]] = []
        self._loss = float64_tensor([0.0, 0.0], torch.device("cpu"))

    def real(self, local: int, process: int) -> int:
        """How many of the first rows of a process's batch are not repeated; the first process has the first rows."""
        return max(0, min(local, self.rows - self.seen - process * local))

    def add_played(self, sums: Mapping[str, float]) -> None:
        """Add the sums of a batch, as ``metrics.rollout_sums`` gives them."""
        for name, value in sums.items():
            self._played[name] += value  # type: ignore[assignment]  # typeshed: counts are whole numbers

    def add_rewards(self, rewards: torch.Tensor) -> None:
        """Add (B, F) rewards of a batch on all processes, repetitions included."""
        self._rewards.append(in_float64(rewards[: self.rows - self.seen]).cpu())

    def add_lengths(self, lengths: torch.Tensor, ended: torch.Tensor) -> None:
        """End a batch: (B,) sampled tokens of all processes' rows, and whether each ended by itself."""
        here = self.rows - self.seen
        self._lengths.append(in_float64(lengths[:here]).cpu())
        self._ended.append(ended[:here].bool().cpu())
        self.seen += len(lengths)

    def add_batch(self, figures: Mapping[str, float], weight: float) -> None:
        """Add further figures of a batch with their weight: its rows, or its tokens."""
        self._batches.append((weight, dict(figures)))

    def add_loss(self, loss: float, counted: float, weight: float) -> None:
        """Add this process's loss of a batch, a mean over ``counted`` of which ``weight`` are not repeated."""
        if weight:
            self._loss += float64_tensor([loss * counted, weight], self._loss.device)

    @property
    def loss(self) -> torch.Tensor:
        """(2,) this process's sum of losses and what they are a mean over; add them up over processes, then divide."""
        return self._loss

    def figures(self, names: Sequence[str], weights: torch.Tensor, group_size: int, scale: str) -> dict[str, float]:
        """All figures by TRL's log keys without its prefix; ``weights`` are (F,), one per reward function."""
        found = self._of_batches()
        if self._lengths:
            found |= length_figures(torch.cat(self._lengths), torch.cat(self._ended))
        if self._rewards:
            found |= reward_figures(torch.cat(self._rewards), names, in_float64(weights).cpu(), group_size, scale)
        return found | rollout_means(self._played)

    def _of_batches(self) -> dict[str, float]:
        values: dict[str, list[tuple[float, float]]] = {}
        for weight, figures in self._batches:
            for name, value in figures.items():
                known = values.setdefault(name, [])
                if not math.isnan(value):
                    known.append((weight, value))
        return {name: _combined(name, pairs) for name, pairs in values.items()}


def length_figures(lengths: torch.Tensor, ended: torch.Tensor) -> dict[str, float]:
    """TRL's figures of completions: (N,) sampled tokens of each row, and whether it ended with an end of turn."""
    finished = lengths[ended] if bool(ended.any()) else torch.zeros(1, dtype=lengths.dtype)
    figures = {"completions/clipped_ratio": 1 - in_float64(ended).mean().item()}
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


def _combined(name: str, pairs: Sequence[tuple[float, float]]) -> float:
    """One value of (weight, value) of batches: the least, the largest, or the mean."""
    if not pairs:
        return math.nan
    values = [value for _, value in pairs]
    if name.startswith(("clip_ratio/", "sampling/")) and name.endswith(("min", "max")):
        return min(values) if name.endswith("min") else max(values)
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else sum(values) / len(values)
