"""StarPO-S of a pretrained model on Sokoban, as far as time allows: the last part of the GPU campaign.

The commands of the package, in this process: a warm start, then training. Ctrl-C stops them with a checkpoint, and the
next call goes on from there. The settings are those of benchmarks/pretrained.py, with RAGEN's 128 trajectories a
rollout and a rate that falls to 0, and with larger micro-batches, since a GPU has room.
"""

import json
import sys
from pathlib import Path
from typing import Any

from agents.games import GAMES, TRAINING, WARM_START
from agents.results import so_far
from agents.runs import arguments

from ragen_trl.cli.main import main as command

GAME = GAMES["sokoban"]
UPDATES = 150
TRAIN: dict[str, Any] = {
    **TRAINING,
    "algo": "starpo-s",
    "per_device_train_batch_size": 32,
    "gradient_accumulation_steps": 4,
    "num_generations": 16,
    "max_steps": UPDATES,
    "lr_scheduler_type": "linear",
    "save_steps": 10,
    "eval_strategy": "steps",
    "eval_steps": 25,
    "num_eval_seeds": 128,
    "per_device_eval_batch_size": 128,
    "eval_episodes": 256,
    "record_rollouts": 0,
    "seed": 0,
}
# Of a random model, in a rehearsal.
SHORT_WARM_START = {"demonstrations": 32, "demo_epochs": 1.0, "demo_lora_r": 0, "demo_batch_size": 4}
SHORT = {
    **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 4, "max_steps": 2},
    **{"eval_steps": 1, "num_eval_seeds": 4, "per_device_eval_batch_size": 4, "eval_episodes": 4, "lora_r": 4},
    **{"filter_ratio": 0.5, "save_steps": 1},
}
SHORT_PLAY = {"max_turns": 2, "max_actions": 4, "max_reply_length": 8}


def do(model: str, folder: Path, rehearses: bool) -> None:
    """Do what is missing.

    Raises:
        SystemExit: If a command fails, or Ctrl-C stopped it.
    """
    warm, run = folder / "warm_start", folder / "train"
    game = {"env": GAME.env, "env_kwargs": GAME.env_kwargs, **GAME.play, **(SHORT_PLAY if rehearses else {})}
    if not (warm / "warm_start.json").exists():
        options = {**WARM_START, **(SHORT_WARM_START if rehearses else {}), "seed": 0, "output_dir": str(warm)}
        _done(command(["warm-start", *arguments({"model": model, **game, **options}, {})]))
    if not (run / "summary.json").exists():
        options = {**TRAIN, **(SHORT if rehearses else {}), "output_dir": str(run)}
        _done(command(["train", *arguments({"model": str(warm), **game, **options}, {})]))


def _done(status: int) -> None:
    if status:
        raise SystemExit(status)


def main() -> int:
    """Do what the first argument (JSON) describes; whatever came out goes into the file of the second one."""
    asked, answer = json.loads(sys.argv[1]), Path(sys.argv[2])
    folder = Path(asked["folder"])
    try:
        do(asked["model"], folder, asked["rehearses"])
    finally:  # Ctrl-C, too
        answer.write_text(json.dumps(so_far(folder / "train")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
