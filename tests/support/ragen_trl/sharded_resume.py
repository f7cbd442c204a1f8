"""What processes of the checkpoint tests run: updates, saved, and gone on with in the same launch or another one.

``cells.json`` has [case, weights, engine] each. Two processes train, leave the last weights, write the model, and go on
from the second of three checkpoints. Any other number of processes only goes on.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.support.ragen_trl.sharded import learnt, make_trainer, saved_model

_SAVES = {"save_strategy": "steps", "save_steps": 1}


def main(folder: Path) -> None:
    """All cells."""
    processes = int(os.environ["WORLD_SIZE"])
    saved_model()
    for name, weights, engine in json.loads((folder / "cells.json").read_text(encoding="utf-8")):
        place = f"{name} {weights} {engine}"
        try:
            made = resumed(folder / place, name, weights, engine, processes)
        except Exception:
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{place} {processes} {os.environ['RANK']}.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


def resumed(run: Path, name: str, weights: str, engine: str, processes: int) -> dict[str, Any]:
    """The weights of the unbroken run, from two processes, and of the one that went on."""
    changes: dict[str, Any] = {**_SAVES, **({"refresh_steps": 1} if name == "A*-PO" else {})}
    made = {}
    if processes == 2:
        trainer = make_trainer(run, name, weights, engine, **changes)
        trainer.train()
        made["unbroken"] = learnt(trainer)
        trainer.save_model(str(run / "export"))
    again = make_trainer(run, name, weights, engine, **changes)
    again.train(resume_from_checkpoint=str(run / "checkpoint-2"))
    assert again.state.global_step == 3
    return {**made, "resumed": learnt(again)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
