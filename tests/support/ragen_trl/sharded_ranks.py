"""What each of two processes runs: cells of the table of algorithms, engines and weights, all in one launch."""

import json
import os
import sys
import traceback
from pathlib import Path

import torch

from tests.support.ragen_trl.sharded import saved_model, trained


def main(folder: Path) -> None:
    """The cells of ``cells.json``, [case, weights, engine] each; a cell that fails leaves its error."""
    saved_model()
    for name, weights, engine in json.loads((folder / "cells.json").read_text(encoding="utf-8")):
        place = f"{name} {weights} {engine}"
        try:
            made = trained(folder / place, name, weights, engine)
        except Exception:
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{place} {os.environ['RANK']}.pt")
    torch.distributed.barrier()  # the first process must not leave before the other has written
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
