"""Checkpoints: nothing half-written is read as whole, and Ctrl-C leaves a checkpoint."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from ragen_trl.trainers.checkpoints import (
    CheckpointError,
    StopOnInterrupt,
    check_parts,
    last_resumable_checkpoint,
    last_whole_checkpoint,
    resumable_checkpoint,
)


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


def test_the_newest_is_found_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (5, 10, 9):
        checkpoint(tmp_path, f"checkpoint-{step}", state(step))
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize(
    "broken",
    [None, "", '{"global_step": 10', "[10]", "null", "10", b"\xff\xfe\x00", state(9), '{"global_step": null}'],
    ids=["missing", "empty", "cut off", "list", "null", "number", "binary", "of another step", "no step"],
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
    assert resumable_checkpoint(True, str(tmp_path), 4, -1) == tmp_path / "checkpoint-8"
    assert resumable_checkpoint("True", str(tmp_path), 4, 20) == tmp_path / "checkpoint-8"
    assert resumable_checkpoint(True, str(tmp_path), 1, 20) == tmp_path / "checkpoint-10"
    with pytest.raises(CheckpointError, match="checkpoint-10 was saved between two updates on one rollout, which is"):
        resumable_checkpoint(True, str(tmp_path), 3, 20)


def test_a_run_that_is_over_needs_no_rollout(tmp_path: Path) -> None:
    """Regression: the last checkpoint of 10 updates, four on a rollout, was refused, and with it the run's end."""
    folder = checkpoint(tmp_path, "checkpoint-10", state(10))
    assert last_resumable_checkpoint(tmp_path, 4, 10) == folder
    assert resumable_checkpoint(str(folder), str(tmp_path), 4, 10) == folder
    assert last_resumable_checkpoint(tmp_path, 4, 11) is None


@pytest.mark.parametrize("processes", [0, 1, 2, 3])
def test_deepspeeds_parts_are_read_by_as_many_processes(tmp_path: Path, processes: int) -> None:
    """Without DeepSpeed (0) nothing would read them."""
    folder = checkpoint(tmp_path, "checkpoint-5", state(5))
    check_parts(folder, processes)
    for rank in (0, 1):
        path = folder / "global_step5" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"part")
    if processes == 2:
        check_parts(folder, processes)
    else:
        with pytest.raises(ValueError, match="saved by DeepSpeed on 2 processes, and this launch .*resume with Deep"):
            check_parts(folder, processes)


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoint(tmp_path, "checkpoint-7-old", state(7))
    checkpoint(tmp_path, "checkpoint-x", state(7))
    (tmp_path / "checkpoint-8").write_text("a file")
    assert last_whole_checkpoint(tmp_path) is None
    assert last_whole_checkpoint(tmp_path / "missing") is None


class Regression(torch.nn.Module):
    """One weight, as little as a ``Trainer`` can train."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x) - labels).square().mean()}


def trainer(folder: Path, callbacks: list[Any], steps: int = 2) -> Trainer:
    rows = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 4
    args = TrainingArguments(
        str(folder), max_steps=steps, save_steps=1, use_cpu=True, report_to="none", disable_tqdm=True
    )
    return Trainer(Regression(), args, train_dataset=rows, callbacks=callbacks)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_finishes_the_step_saves_and_stops(tmp_path: Path, number: int) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = StopOnInterrupt()
    training = trainer(tmp_path, [stop], steps=50)
    training.args.save_steps = 1000
    weight = training.model.layer.weight
    weight.register_hook(lambda _: None if stop.stopped else os.kill(os.getpid(), number))  # in the first backward pass
    training.train()
    assert stop.stopped
    assert training.state.global_step == 1
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


@pytest.mark.usefixtures("python_handles_interrupts")
def test_a_second_interrupt_stops_at_once() -> None:
    stop = StopOnInterrupt()
    args, training_state, control = TrainingArguments("unused"), TrainerState(), TrainerControl()
    stop.on_train_begin(args, training_state, control)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.stopped
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_signals_are_given_back_after_an_undisturbed_training(tmp_path: Path) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = StopOnInterrupt()
    training = trainer(tmp_path, [stop])
    training.train()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert not stop.stopped
    assert training.state.global_step == 2
