"""What each of two processes runs with FSDP2 and a fake vLLM server: two updates on unequally long episodes."""

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch.distributed.fsdp import FSDPModule

from tests.support.ragen_trl.fake_vllm import LORA, install_fake_vllm
from tests.support.ragen_trl.sharded import ENGINES, allow_on_the_cpu
from tests.support.ragen_trl.trainers import LastRollout, lottery, small_trainer
from tests.support.ragen_trl.vllm_two_ranks import SERVER


def main(folder: Path) -> None:
    """All weights, then LoRA, then its adapter alone."""
    patch = pytest.MonkeyPatch()
    install_fake_vllm(patch)
    gathered: list[str] = []
    unshard = FSDPModule.unshard
    patch.setattr(FSDPModule, "unshard", lambda self, *args: gathered.append("module") or unshard(self, *args))
    for weights in ("all", "LoRA", "adapter"):
        try:
            made: dict[str, Any] = {**trained(folder, weights), "gathered": len(gathered)}
        except Exception:
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{weights} {os.environ['RANK']}.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


def trained(folder: Path, weights: str) -> dict[str, Any]:
    """What the updates log, and how many turns there were."""
    allow_on_the_cpu("FSDP2")
    options = {name: value for name, value in SERVER.items() if name != "ddp_backend"}
    torch.manual_seed(0)
    adapter = None if weights == "all" else LoraConfig(**LORA)
    if weights == "adapter":
        options["vllm_adapter_dir"] = str(folder / "adapters")
    trainer = small_trainer(folder / weights, lottery(draws=9), peft_config=adapter, **options, **ENGINES["FSDP2"])
    last = LastRollout(trainer)
    trainer.train()
    turns = [len(trajectory.turns) for trajectory in last.played]
    return {"metrics": [row for row in trainer.state.log_history if "loss" in row], "turns": turns}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
