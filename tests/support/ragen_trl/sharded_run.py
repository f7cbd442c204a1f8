"""What each of two processes of a run runs that may be killed: it goes on from the last whole checkpoint."""

import json
import os
import sys
from pathlib import Path

import torch

from ragen_trl.trainers.checkpoints import last_whole_checkpoint
from tests.support.ragen_trl.sharded import learnt, make_trainer, saved_model


def main(folder: Path) -> None:
    """``settings.json``: case, weights, engine, and the number of updates."""
    saved_model()
    name, weights, engine, updates = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    saves = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    trainer = make_trainer(folder, name, weights, engine, max_steps=updates, **saves)
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder) is not None)
    made = learnt(trainer)["parameters"]
    if os.environ["RANK"] == "0":
        torch.save(made, folder / "weights.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
