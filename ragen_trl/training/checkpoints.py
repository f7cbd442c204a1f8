"""Stop and resume without loss: checkpoints that are whole or do not count, and a Ctrl-C that writes one."""

import logging
import os
import re
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate.utils import DistributedType, gather_object
from transformers import Trainer, TrainerCallback

from ragen_trl.errors import UserError
from ragen_trl.policies.models import base_weights, check_base
from ragen_trl.system.atomic import MANIFEST, damage, read_manifest, reading, seal
from ragen_trl.system.provenance import provenance

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def facts_of(trainer: Trainer) -> dict[str, Any]:
    """What a manifest says of a trainer's model and launch: ``base`` of an adapter, ``processes``, ``divided_by``."""
    accelerator = trainer.accelerator
    base, kind = base_weights(accelerator.unwrap_model(trainer.model)), accelerator.distributed_type
    divided = kind.value if kind in (DistributedType.DEEPSPEED, DistributedType.FSDP) else None
    return {"base": base, "processes": accelerator.num_processes, "divided_by": divided}


def finish_checkpoint(trainer: Trainer, folder: Path, facts: Mapping[str, Any], limit: int | None) -> None:
    """Seal a checkpoint that all processes have written, then delete older ones until ``limit`` are left.

    Transformers would delete them before, so a power cut could leave none: it is not told the limit. This one and the
    best one stay. All processes call it.
    """
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        facts = {"saves_optimizer": not trainer.args.save_only_model, **facts, **provenance()}
        seal(folder, {"step": trainer.state.global_step, **facts})
        stays = {folder, Path(trainer.state.best_model_checkpoint or folder)}
        others = {*_checkpoints(folder.parent).values()} - stays if limit else set[Path]()
        sealed = {one: (one / MANIFEST).stat().st_mtime_ns for one in others if (one / MANIFEST).is_file()}
        for one in sorted(others, key=lambda one: sealed.get(one, 0), reverse=True):
            if len(stays) < (limit or 0) and not damage(one):
                stays.add(one)
            else:
                (one / MANIFEST).unlink(missing_ok=True)  # first: what is left of it does not count
                shutil.rmtree(one)
    trainer.accelerator.wait_for_everyone()


def whole_checkpoints(output_dir: str | os.PathLike[str]) -> dict[int, Path]:
    """The checkpoints of a run that have all that their manifests list, in its size, by step."""
    return {step: folder for step, folder in _checkpoints(output_dir).items() if not damage(folder)}


def last_whole_checkpoint(
    output_dir: str | os.PathLike[str], steps_per_rollout: int = 1, max_steps: int = -1
) -> Path | None:
    """The newest whole checkpoint at the end of a rollout or of the run (-1: no ``max_steps``), or ``None``.

    Its files are compared with their hashes. Newer ones that are not whole are logged in a line.
    """
    skipped: list[str] = []
    for step, folder in sorted(_checkpoints(output_dir).items(), reverse=True):
        if _is_an_end(step, steps_per_rollout, max_steps):
            if not (wrong := damage(folder, contents=True)):
                break
            skipped.append(f"{folder.name} ({wrong})")
    else:
        folder = None
    if skipped:
        logger.warning("%s: skipped what is not whole: %s", output_dir, ", ".join(skipped))
    return folder


def resumable_checkpoint(
    asked: str | bool | None, output_dir: str, steps_per_rollout: int, max_steps: int, facts: Mapping[str, Any]
) -> Path | None:
    """The checkpoint to resume from: ``asked``, its folder, or if that is True or "last" `last_whole_checkpoint`.

    Raises:
        UserError: If there is none (then "last" gives ``None``), or it was saved between two updates on one rollout,
            whose trajectories are gone, or by a launch or with a base model other than `facts_of` this trainer.
    """
    if not asked:
        return None
    if str(asked).lower() in ("true", "last"):
        found = last_whole_checkpoint(output_dir, steps_per_rollout, max_steps)
        if asked == "last" and found is None:
            return None
        found = found or last_whole_checkpoint(output_dir)
        wrong = "" if found else "there is no whole checkpoint"
    else:
        found = Path(str(asked))
        wrong = damage(found, contents=True)
    if found is None or wrong:
        raise UserError(f"{found or output_dir}: {wrong}; train without resuming, or give another folder")
    saved = read_manifest(found)
    with reading(found / MANIFEST, "give the folder of a checkpoint"):
        between = not _is_an_end(saved["step"], steps_per_rollout, max_steps)
    if between:
        raise UserError(
            f"{found} was saved between two updates on one rollout, which is gone; resume from a step that "
            f"{steps_per_rollout} divides, and save (save_steps, or eval_steps of the best) at multiples"
        )
    # Transformers would begin the optimizer again, and DeepSpeed finds out in one process after another.
    was, now = ((one.get("divided_by"), one.get("processes")) for one in (saved, facts))
    if was[0] != now[0] or (was[0] == "DEEPSPEED" and was != now):
        raise UserError(
            f"{found} was saved with {was[0] or 'no engine'} on {was[1]} processes, and this launch has "
            f"{now[0] or 'no engine'} on {now[1]}; resume as it was saved, or begin a new run with the model that it "
            "holds (of DeepSpeed's, zero_to_fp32.py in that folder writes it)"
        )
    check_base(found, saved.get("base"), facts.get("base"))
    if not saved.get("saves_optimizer"):
        logger.warning("%s has no optimizer (save_only_model): it begins again", found)
    return found


def _is_an_end(step: int, steps_per_rollout: int, max_steps: int) -> bool:
    return step % steps_per_rollout == 0 or 0 < max_steps <= step


def _checkpoints(output_dir: str | os.PathLike[str]) -> dict[int, Path]:
    found = [(_CHECKPOINT.fullmatch(folder.name), folder) for folder in Path(output_dir).glob("checkpoint-*")]
    return {int(match[1]): folder for match, folder in found if match}


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C, SIGTERM or a closed terminal ends training after the present rollout, with a checkpoint.

    A second Ctrl-C or SIGTERM ends it at once.

    Attributes:
        stopped: Whether training was stopped that way.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._previous: dict[int, Any] = {}
        self._tells = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take over the signals. Only the main thread may do so; elsewhere they stay as they are."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._tells = args.process_index == 0
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup lets it be
            numbers.append(signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._stop) for number in numbers}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between two rollouts everything is consistent: save here and stop, on all processes together."""
        ended = state.global_step % max(1, getattr(args, "steps_per_rollout", 1)) == 0
        if ended and any(gather_object([self.stopped])):
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Give the signals back; call it after an exception, too, which skips it."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if number in (signal.SIGINT, signal.SIGTERM):
            self.on_train_end()
            if self._tells:
                sys.stderr.write("\nStopping after this rollout and its update; press Ctrl-C again to stop at once.\n")
            return
        for stream in (sys.stdout, sys.stderr):  # the terminal is gone: what is written to it would fail
            with suppress(OSError, ValueError):
                if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):  # it is no longer a terminal to ``isatty``
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
