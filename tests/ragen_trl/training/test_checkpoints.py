"""Checkpoints: nothing half-written is read as whole, Ctrl-C leaves one, and a broken training goes on."""

import json
import os
import signal
from pathlib import Path

import pytest

from ragen_trl.errors import UserError
from ragen_trl.training.checkpoints import (
    StopOnInterrupt,
    last_whole_checkpoint,
    resumable_checkpoint,
)
from tests.support.ragen_trl.trainers import lottery, small_trainer


def checkpoint(folder: Path, name: str, state: str | bytes | None) -> Path:
    """A checkpoint folder with this ``trainer_state.json``, or without one."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    if state is not None:
        (path / "trainer_state.json").write_bytes(state if isinstance(state, bytes) else state.encode())
    return path


def state(step: int) -> str:
    return json.dumps({"global_step": step})


@pytest.mark.parametrize(
    "broken",
    [None, '{"global_step": 10', "[10]", b"\xff\xfe\x00", state(9)],
    ids=["missing", "cut off", "list", "binary", "of another step"],
)
def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path, broken: str | bytes | None) -> None:
    whole = checkpoint(tmp_path, "checkpoint-5", state(5))
    checkpoint(tmp_path, "checkpoint-10", broken)
    assert last_whole_checkpoint(tmp_path) == whole


def test_a_run_goes_on_from_the_end_of_a_rollout(tmp_path: Path) -> None:
    """Regression: a newer checkpoint between two updates on a rollout stopped the run, although an older one serves."""
    for step in (4, 8, 10):
        checkpoint(tmp_path, f"checkpoint-{step}", state(step))
    assert resumable_checkpoint(True, str(tmp_path), 4, 20) == tmp_path / "checkpoint-8"
    assert resumable_checkpoint(True, str(tmp_path), 1, 20) == tmp_path / "checkpoint-10"
    with pytest.raises(UserError, match="checkpoint-10 was saved between two updates on one rollout, which is"):
        resumable_checkpoint(True, str(tmp_path), 3, 20)


def test_an_interrupt_finishes_the_step_saves_and_stops(tmp_path: Path) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = StopOnInterrupt()
    training = small_trainer(tmp_path, lottery(), callbacks=[stop], max_steps=50)
    weight = training.model.lm_head.weight
    weight.register_hook(
        lambda _: None if stop.stopped else os.kill(os.getpid(), signal.SIGTERM)
    )  # in the first backward pass
    training.train()
    assert stop.stopped
    assert training.state.global_step == 1
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
