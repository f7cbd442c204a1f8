"""A long run on two divided processes that is killed at random and gone on with; `sharded_run` is what they run.

``python -m tests.support.ragen_trl.sharded_killed ENGINE UPDATES KILLS`` prints what came out, as JSON.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch

from ragen_trl.trainers.checkpoints import whole_checkpoints
from tests.support.ragen_trl.launches import kill, on_two_processes, start

MODULE = "tests.support.ragen_trl.sharded_run"


def unbroken(folder: Path, settings: str, timeout: float) -> dict[str, torch.Tensor]:
    """The weights at the end of a run that nobody kills.

    Args:
        folder: For the run.
        settings: What `sharded_run` reads, in JSON.
        timeout: In seconds.
    """
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(settings, encoding="utf-8")
    on_two_processes(MODULE, folder, timeout)
    weights: dict[str, torch.Tensor] = torch.load(folder / "weights.pt")
    return weights


def killed(folder: Path, settings: str, updates: int, kills: int, timeout: float) -> dict[str, torch.Tensor]:
    """The same of a run that is killed and gone on with.

    Each time all processes are killed at once, at a random moment of the next ``updates / kills`` updates, and after at
    least one of them.
    """
    chance = random.Random(0)
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(settings, encoding="utf-8")
    for number in range(kills):
        # Not so late that the run may end before it is killed.
        after = updates * number // kills + chance.randint(1, max(1, updates // kills - 3))
        launch, began = start(MODULE, folder), time.monotonic()
        try:
            while max(whole_checkpoints(folder), default=0) < after:
                assert launch.poll() is None and time.monotonic() - began < timeout, (number, after, launch.poll())
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 0.3))
            ranks = psutil.Process(launch.pid).children()
            workers = psutil.Process(launch.pid).children(recursive=True)  # what a rank has just started among them
        finally:
            kill(launch)
        assert len(ranks) == 2 and not any(worker.is_running() for worker in workers), workers
        assert not (folder / "weights.pt").exists()
    on_two_processes(MODULE, folder, timeout)
    weights: dict[str, torch.Tensor] = torch.load(folder / "weights.pt")
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)
    return weights


def main(engine: str, updates: int, kills: int) -> None:
    """Both runs, and the largest distance of a weight."""
    settings = json.dumps(["StarPO-S", "LoRA", engine, updates])
    with tempfile.TemporaryDirectory() as folder:
        whole = unbroken(Path(folder) / "unbroken", settings, timeout=36_000)
        broken = killed(Path(folder) / "killed", settings, updates, kills, timeout=36_000)
    apart = max(float((broken[name] - value).abs().max()) for name, value in whole.items())
    sys.stdout.write(json.dumps({"engine": engine, "updates": updates, "kills": kills, "deviation": apart}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
