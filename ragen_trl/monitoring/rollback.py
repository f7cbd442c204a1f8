"""Back to the best checkpoint: which one that is, and its weights into the model in hand.

Leans on transformers' ``Trainer._load_best_model``, which loads the folder that ``state.best_model_checkpoint`` names,
whatever the launch and the kind of model (pinned by test_diagnostics.py). The optimiser and the schedule stay as they
are: a run that was rolled back is over, and to train on from there means to resume from that folder.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import Trainer

from ragen_trl.trainers.trajectory import TrajectoryTrainer

_WINDOW = 10  # logged rollouts that a checkpoint is judged by


def best_step(steps: Iterable[int], rows: Iterable[Mapping[str, Any]]) -> int | None:
    """The step whose last ten rollouts succeeded most; the latest of equals, ``None`` if nothing was logged before any.

    Args:
        steps: To choose from.
        rows: As logged. Without ``success`` the return counts (``return``, or ``reward`` of a plain GRPOTrainer).
    """
    rows = list(rows)
    key = next((key for key in ("success", "return", "reward") if any(key in row for row in rows)), "success")
    judged = {}
    for step in sorted(steps):
        values = [row[key] for row in rows if row.get(key) is not None and row["step"] <= step]
        if values:
            judged[step] = fmean(values[-_WINDOW:])
    return max(reversed(judged), key=judged.__getitem__) if judged else None


def load_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Put a checkpoint's weights into the trainer's model, with the critic or the values that lie beside them."""
    trainer.state.best_model_checkpoint = str(folder)
    trainer._load_best_model()
    if isinstance(trainer, TrajectoryTrainer):
        trainer.load_algorithm_state(folder)
