"""What each process of the two-process test runs: one step, after which the first saves the parameters."""

import os
import sys
from pathlib import Path

import torch

from tests.ragen_trl.trainers import lottery, parameters, small_trainer


def main(folder: Path, filter_ratio: float) -> None:
    """One SGD step on this rank's half of 24 trajectories."""
    trainer = small_trainer(
        folder,
        lottery(),
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0.0,
        max_steps=1,
        ddp_backend="gloo",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=6,
        filter_ratio=filter_ratio,
    )
    assert trainer.accelerator.num_processes == 2
    trainer.train()
    if trainer.accelerator.is_main_process:
        torch.save(parameters(trainer), folder / "parameters.pt")
        torch.save(trainer.state.log_history[0], folder / "metrics.pt")
    # Not destroy_process_group: gloo was seen to wait there for ever once the other rank had left.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
