"""What is measured in one training run: its curve, its distance from the reference, its memory, its gradients.

The curve's horizontal axis is the number of sampled trajectories, because variants can be compared at equal
numbers of them: an update of one variant uses 128, of another 32. Times are without evaluations.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.filtering import group_std
from ragen_trl.batching.batch import collate
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.trainers.observers import RolloutEvent
from ragen_trl.trainers.trajectory import TrajectoryTrainer
from ragen_trl.trainers.trl.plain import log_training
from ragen_trl.trajectory import Trajectory

# Log keys → names in a curve's rows, where they are means over the updates since the row before.
LOGGED = {
    "success": "train_success",
    "return": "train_return",
    "loss": "loss",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "filter/in_group_std": "in_group_std",
    "filter/trajectories_used": "trajectories_used",
    "clip_ratio/region_mean": "clip_ratio",
    "astar/log_ratio": "log_ratio",
    "astar/residual": "residual",
    "critic/explained_variance": "explained_variance",
}
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Curve(TrainerCallback):
    """Evaluates a run at equal numbers of sampled trajectories, and ends it at a number of them.

    Args:
        measure: Plays the held-out episodes with the model in training; its figures make a row.
        trajectories: The run ends with the rollout that reaches this number.
        every: Trajectories from one evaluation to the next.
        steps_per_rollout: Updates on one rollout; nothing is measured between them.

    Attributes:
        rows: Figures of the evaluations, each with what was spent up to there. Trajectories of a reference policy count
            in ``trajectories``; ``reference_trajectories`` counts only them.
        steps: What each update logged.
    """

    def __init__(
        self, measure: Callable[[], dict[str, float]], trajectories: int, every: float, steps_per_rollout: float
    ) -> None:
        self._measure, self._end, self._every = measure, trajectories, every
        self._steps_per_rollout = max(1, round(steps_per_rollout))
        self.rows: list[dict[str, Any]] = []
        self.steps: list[dict[str, float]] = []
        self._played = 0
        self._reference_played = 0
        self._seconds = self._cpu_seconds = 0.0
        self._peak = 0.0
        self._clock = 0.0, 0.0

    def begin(self) -> None:
        """Evaluate before training, then start the clocks."""
        self._add_row(step=0)
        self._resume()
        self._peak = peak_memory()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count what an update sampled; evaluate when that is due, and stop at the number of trajectories."""
        if logs is None or "train_runtime" in logs:
            return
        self._played += round(logs.get("filter/trajectories_sampled", 0))
        self._reference_played = round(logs.get("astar/reference_episodes", self._reference_played))
        known = {name: logs[key] for key, name in LOGGED.items() if logs.get(key) is not None}
        self.steps.append({"step": state.global_step, "trajectories": self._sampled, **known})
        if state.global_step % self._steps_per_rollout:
            return
        if self._sampled >= self.rows[-1]["due"]:
            self._pause()
            self._add_row(state.global_step)
            self._resume()
        control.should_training_stop = control.should_training_stop or self._sampled >= self._end

    def finish(self, step: int) -> None:
        """Stop the clocks, and evaluate unless the last row is that already."""
        self._pause()
        if self.rows[-1]["step"] < step:
            self._add_row(step)
        for row in self.rows:
            del row["due"]

    def totals(self) -> dict[str, float]:
        """What the whole run took."""
        return {
            "seconds": self._seconds,
            "cpu_seconds": self._cpu_seconds,
            "peak_mib": self._peak,
            "loss_min": min(row["loss"] for row in self.steps),
        }

    @property
    def _sampled(self) -> int:
        return self._played + self._reference_played

    def _add_row(self, step: int) -> None:
        recent = [row for row in self.steps if row["step"] > (self.rows[-1]["step"] if self.rows else 0)]
        values = {name: [row[name] for row in recent if name in row] for name in LOGGED.values()}
        self.rows.append(
            {
                "step": step,
                "trajectories": self._sampled,
                "reference_trajectories": self._reference_played,
                "seconds": self._seconds,
                "cpu_seconds": self._cpu_seconds,
                "due": (self._sampled // self._every + 1) * self._every,
                **self._measure(),
                **{name: fmean(found) for name, found in values.items() if found},
            }
        )

    def _pause(self) -> None:
        wall, cpu = self._clock
        self._seconds += time.perf_counter() - wall
        self._cpu_seconds += time.process_time() - cpu
        self._peak = max(self._peak, peak_memory())

    def _resume(self) -> None:
        reset_peak_memory()
        self._clock = time.perf_counter(), time.process_time()


def distance(trajectories: Sequence[Trajectory], reference: PreTrainedModel, batch_size: int = 16) -> float:
    r"""KL to the reference, :math:`\mathrm E_\pi \sum_{t: m_t = 1} \log \pi(y_t) - \log \pi_{ref}(y_t)`, in nats.

    Args:
        trajectories: Sampled from π at temperature 1.
        reference: π_ref.
        batch_size: Trajectories per forward pass.

    Returns:
        Mean over the trajectories, an estimate that may fall below 0.
    """
    ratios: list[float] = []
    for first in range(0, len(trajectories), batch_size):
        batch = collate(trajectories[first : first + batch_size], pad_id=0)
        ids, mask = batch["input_ids"], batch["action_mask"].bool()
        with torch.no_grad():
            logits = reference(input_ids=ids, attention_mask=batch["attention_mask"]).logits
        logprobs = torch.zeros_like(batch["logprobs"])  # (B, S); the logits of a column are for the next one
        logprobs[:, 1:] = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        ratios += ((batch["logprobs"] - logprobs) * mask).sum(dim=1).tolist()
    return fmean(ratios)


def peak_memory() -> float:
    """Most MiB that this process has held since ``reset_peak_memory``; NaN where the system is not Linux."""
    if not _STATUS.exists():
        return math.nan
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def reset_peak_memory() -> None:
    """Count the peak from here: evaluations use memory too, and are no part of a method."""
    if _RESET.exists():
        _RESET.write_text("5")


class SpreadGradients:
    """Logs how large the gradient of a group is by the spread of its returns, as RAGEN-2 asks (arXiv 2604.06268).

    Its argument: the gradient of the task is bounded by the standard deviation of a prompt's returns, that of a
    regulariser is not, so that groups of little spread train the regulariser alone. An observer of rollouts; it logs,
    for quarters of the groups from the least to the most spread, ``signal/std_1`` to ``_4`` (mean standard deviation of
    returns), ``signal/task_1`` … (norm of the gradient of Σ A log π) and ``signal/entropy_1`` … (of the mean entropy),
    both per trajectory. Training takes the same steps as without it. Left out: several processes.

    Args:
        trainer: Whose rollouts are measured.
        every: Rollouts from one measurement to the next.
    """

    def __init__(self, trainer: TrajectoryTrainer, every: int) -> None:
        self._trainer, self._every, self._seen = trainer, every, 0
        trainer.observers.append(self)

    def on_rollout(self, event: RolloutEvent) -> None:
        """Measure this rollout if it is its turn."""
        if self._seen % self._every == 0:
            found = gradients_by_spread(self._trainer.model, event.rollout)
            log_training(self._trainer, {f"signal/{name}": value for name, value in found.items()})
        self._seen += 1


def gradients_by_spread(model: PreTrainedModel, rollout: RolloutBatch, buckets: int = 4) -> dict[str, float]:
    """Norms of a rollout's gradients, by quarters of its groups.

    Args:
        model: The policy that played.
        rollout: At least as many groups as buckets, of two trajectories or more; all on this process.
        buckets: How many parts, of equal size as far as possible.

    Returns:
        ``std_i``, ``task_i`` and ``entropy_i``, i = 1 being the part with the least spread.
    """
    stds = group_std(rollout.returns, rollout.group_size)
    advantages = group_advantages(rollout.returns, rollout.group_size, "mean", "none")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found: dict[str, float] = {}
    for number, groups in enumerate(torch.argsort(stds, stable=True).tensor_split(buckets), start=1):
        rows = [row for row in range(len(rollout.trajectories)) if row // rollout.group_size in groups.tolist()]
        batch = collate([rollout.trajectories[row] for row in rows], pad_id=0)
        ids, mask = batch["input_ids"][:, 1:], batch["action_mask"][:, 1:]  # (B, T)
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        logprobs = torch.log_softmax(logits, dim=-1)  # (B, T, V)
        sampled = logprobs.gather(-1, ids[..., None]).squeeze(-1)
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        task = (advantages[rows][:, None] * sampled * mask).sum() / len(rows)
        losses = {"task": task, "entropy": (entropy * mask).sum() / mask.sum()}
        found[f"std_{number}"] = stds[groups].mean().item()
        for name, loss in losses.items():
            gradients = torch.autograd.grad(loss, parameters, retain_graph=name == "task")
            found[f"{name}_{number}"] = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))
    return found
