"""What each process of ``test_deepspeed.py`` runs: updates with DeepSpeed ZeRO-2 on two CPU processes.

Accelerate and DeepSpeed leave the CPU to other launches, so three things are set here that no user sets.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType

from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer

ZERO_2: dict[str, Any] = {
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": "auto",  # without it, DeepSpeed clips at 1
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
_STEP: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "entropy_coef": 0.01}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "all groups": (lottery(draws=3), {**_STEP, "max_steps": 1}),
    "a filter": (lottery(draws=3), {**_STEP, "filter_ratio": 0.4, "max_steps": 2}),
    "one group": (lottery(draws=3), {**_STEP, "filter_ratio": 0.2, "max_steps": 1}),
    "no group": (lottery(win=0.0), {"filter_ratio": 0.4, "weight_decay": 0.5, "learning_rate": 0.01}),
}


def updated(folder: Path, name: str, size: int, accumulation: int, **options: Any) -> dict[str, torch.Tensor]:
    """The weights after the updates of a case, each on 24 trajectories."""
    env, changes = CASES[name]
    trainer = small_trainer(
        folder / name,
        env,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=accumulation,
        **changes,
        **options,
    )
    trainer.train()
    return parameters(trainer)


def main(folder: Path) -> None:
    """All cases in one launch."""
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.NO)
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    for name in CASES:
        weights = updated(folder, name, 2, 6, deepspeed=ZERO_2, use_cpu=False)
        torch.save(weights, folder / f"{name} {os.environ['RANK']}.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    os.environ["DS_ACCELERATOR"] = "cpu"
    main(Path(sys.argv[1]))
