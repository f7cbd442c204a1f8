"""What each process of the sharded tests runs: the cells of ``cells.json``, [job, case, weights, engine] each.

A cell that fails leaves its error. Jobs are updates; updates that are saved and gone on with, in the same launch or in
another one, of any number of processes; and updates with a fake vLLM server on unequally long episodes.
"""

import json
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
from tests.support.ragen_trl.sharded import ENGINES, allow_on_the_cpu, learnt, make_trainer, saved_model, trained
from tests.support.ragen_trl.trainers import LastRollout, lottery, small_trainer
from tests.support.ragen_trl.vllm_two_ranks import SERVER


def resumed(run: Path, name: str, weights: str, engine: str) -> dict[str, Any]:
    """The weights of the unbroken run, from two processes, and of the one that went on from the second checkpoint."""
    changes: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    changes |= {"refresh_steps": 1} if name == "A*-PO" else {}
    made = {}
    if os.environ["WORLD_SIZE"] == "2":
        trainer = make_trainer(run, name, weights, engine, **changes)
        trainer.train()
        made["unbroken"] = learnt(trainer)
        trainer.save_model(str(run / "export"))
    again = make_trainer(run, name, weights, engine, **changes)
    again.train(resume_from_checkpoint=str(run / "checkpoint-2"))
    assert again.state.global_step == 3
    return {**made, "resumed": learnt(again)}


def served(run: Path, name: str, weights: str, engine: str) -> dict[str, Any]:
    """What updates with a server log, how many turns there were, and how often FSDP2 gathered a whole module."""
    patch, gathered = pytest.MonkeyPatch(), []
    install_fake_vllm(patch)
    unshard = FSDPModule.unshard
    patch.setattr(FSDPModule, "unshard", lambda self, *args: gathered.append("module") or unshard(self, *args))
    allow_on_the_cpu(engine)
    options = {key: value for key, value in SERVER.items() if key != "ddp_backend"}
    torch.manual_seed(0)
    adapter = None if weights == "all" else LoraConfig(**LORA)
    trainer = small_trainer(run, lottery(draws=9), peft_config=adapter, **options, **ENGINES[engine])
    last = LastRollout(trainer)
    trainer.train()
    patch.undo()
    turns = [len(trajectory.turns) for trajectory in last.played]
    metrics = [row for row in trainer.state.log_history if "loss" in row]
    return {"metrics": metrics, "turns": turns, "gathered": len(gathered)}


JOBS = {"updates": trained, "resumed": resumed, "served": served}


def main(folder: Path) -> None:
    """All cells in one launch, since it costs more than a cell."""
    saved_model()
    for job, *cell in json.loads((folder / "cells.json").read_text(encoding="utf-8")):
        place = " ".join([job, *cell])
        try:
            made = JOBS[job](folder / place, *cell)
        except Exception:
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{place} {os.environ['WORLD_SIZE']} {os.environ['RANK']}.pt")
    torch.distributed.barrier()  # the first process must not leave before the other has written
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
