"""StarPOTrainer end to end on the tiny model: what is trained and what is not; checkpoints, Ctrl-C and going on."""

import gc
import os
import re
import signal
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from transformers.integrations import TensorBoardCallback

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer
from ragen_trl.errors import UserError
from ragen_trl.rollout import loop
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.system.atomic import seal
from ragen_trl.training.checkpoints import (
    StopOnInterrupt,
    last_whole_checkpoint,
    resumable_checkpoint,
    whole_checkpoints,
)
from tests.support.ragen_trl.trainers import Spy, contexts, logged, lottery, parameters, small_trainer


def test_every_parameter_moves_and_what_was_sampled_is_trained_with_ratio_one(tmp_path: Path) -> None:
    trainer: Any = small_trainer(tmp_path, trainer=Spy, max_steps=3, learning_rate=1e-3, temperature=0.7)
    before = parameters(trainer)
    trainer.train()
    assert not any(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
    assert max(len(one.turns) for one in trainer.played) == 2
    for batch, played in zip(trainer.batches, trainer.rollouts, strict=True):
        assert contexts(batch) == sorted(one.token_ids for one in played)
        masks = (batch["completion_mask"] * batch["tool_mask"]).bool()
        trained = sorted(tuple(ids[mask].tolist()) for ids, mask in zip(batch["completion_ids"], masks, strict=True))
        assert trained == sorted(tuple(token for turn in one.turns for token in turn.reply_ids) for one in played)
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-3


@pytest.mark.parametrize("config", [StarPOSConfig, StarPOConfig], ids=["filtered", "gradients of 0"])
def test_nothing_to_learn_changes_nothing(tmp_path: Path, config: Any) -> None:
    """With weight decay and momentum, an update of zeros would still move the weights."""
    options: dict[str, Any] = {"weight_decay": 0.5, "learning_rate": 0.1, "beta": 0.0, "entropy_coef": 0.0}
    trainer = small_trainer(tmp_path, lottery(win=0.0), config=config, **options)
    before = parameters(trainer)
    trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
    assert logged(trainer, "filter/skipped") == [float(config is StarPOSConfig)] * 2
    assert not trainer.optimizer.state


def test_a_server_that_stays_away_costs_no_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.time, "sleep", lambda seconds: None)
    made: list[StarPOTrainer] = []

    def reset(self: Any, **options: Any) -> Any:
        if made and made[0].state.global_step == 2:
            raise ConnectionError("the server is down")
        return present(self, **options)

    present = gymnasium.Wrapper.reset
    monkeypatch.setattr(gymnasium.Wrapper, "reset", reset)
    made.append(small_trainer(tmp_path, max_steps=3, save_strategy="steps", save_steps=100))
    with pytest.raises(EnvResetError, match="the server is down"):
        made[0].train()
    assert list(whole_checkpoints(tmp_path)) == [2]


@pytest.mark.parametrize("options", [{}, {"log_kl": True}, {"advantage": "gae"}], ids=["group", "reference", "critic"])
def test_a_trainer_that_nobody_holds_is_gone_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    """Regression: a cycle kept it, its model, and what ZeRO-3 does to the next one until a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        trainer = small_trainer(tmp_path, lottery(), max_steps=1, **options)
        trainer.train()
        held = weakref.ref(trainer)
        del trainer
        assert held() is None
    finally:
        gc.enable()


# Checkpoints: nothing half-written is read as whole, Ctrl-C leaves one


def checkpoint(folder: Path, step: int, **facts: Any) -> Path:
    """A whole checkpoint folder."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"weights")
    seal(path, {"step": step, "saves_optimizer": True, **PLAIN, **facts})
    return path


PLAIN: dict[str, Any] = {"base": None, "processes": 1, "divided_by": None}
TORN = {
    "manifest.json is missing": ("manifest.json", None),
    "weights is missing": ("weights", None),
    "weights has 3 bytes instead of 7": ("weights", b"wei"),
    "weights has other contents": ("weights", b"WEIGHTS"),
    "manifest.json is damaged: .*holds a list": ("manifest.json", b"[10]"),
    "manifest.json is damaged: .*codec": ("manifest.json", b"\xff\xfe"),
    "manifest.json is damaged: .*recursion": ("manifest.json", b"[" * 100_000),
    "/dev/zero is missing": ("manifest.json", b'{"files": {"/dev/zero": {"size": 0}}}'),
}


@pytest.mark.parametrize("why", TORN)
def test_a_checkpoint_that_is_not_whole_is_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    whole, torn = checkpoint(tmp_path, 5), checkpoint(tmp_path, 10)
    name, content = TORN[why]
    (torn / name).unlink() if content is None else (torn / name).write_bytes(content)
    assert resumable_checkpoint(True, str(tmp_path), 1, 20, PLAIN) == whole
    (said,) = caplog.messages
    assert re.search(rf"skipped.*checkpoint-10 \({why}", said)
    assert sorted(whole_checkpoints(tmp_path)) == ([5, 10] if "other contents" in why else [5])


def test_a_checkpoint_is_not_resumed_by_another_launch_or_on_another_base(tmp_path: Path) -> None:
    ours, theirs = ({"name": name, "weights": name} for name in ("ours", "theirs"))
    engine = {**PLAIN, "divided_by": "DEEPSPEED", "processes": 2}
    for saved, now, why in (
        (engine, {**engine, "processes": 3}, "was saved with DEEPSPEED on 2 .* this launch has DEEPSPEED on 3"),
        (engine, PLAIN, "and this launch has no engine on 1"),
        (PLAIN, engine, "was saved with no engine on 1"),
        ({**PLAIN, "base": theirs}, {**PLAIN, "base": ours}, "was trained on 'theirs', and 'ours' has other weights"),
    ):
        folder = str(checkpoint(tmp_path / why[-20:], 1, **saved))
        assert resumable_checkpoint(folder, "", 1, 20, saved) == Path(folder)
        with pytest.raises(UserError, match=why):
            resumable_checkpoint(folder, "", 1, 20, now)


def test_a_run_goes_on_from_the_end_of_a_rollout(tmp_path: Path) -> None:
    """Regression: a newer checkpoint between two updates on a rollout stopped the run, although an older one serves."""
    for step in (4, 8, 10):
        checkpoint(tmp_path, step)
    assert resumable_checkpoint(True, str(tmp_path), 4, 20, PLAIN) == tmp_path / "checkpoint-8"
    assert resumable_checkpoint(True, str(tmp_path), 1, 20, PLAIN) == tmp_path / "checkpoint-10"
    with pytest.raises(UserError, match="checkpoint-10 was saved between two updates on one rollout, which is"):
        resumable_checkpoint(True, str(tmp_path), 3, 20, PLAIN)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_finishes_the_step_saves_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    before, of_ctrl_c = signal.signal(number, signal.SIG_DFL), signal.getsignal(signal.SIGINT)  # nohup ignores SIGHUP
    stop = StopOnInterrupt()
    training = small_trainer(tmp_path, lottery(), callbacks=[stop], max_steps=50)
    weight = training.model.lm_head.weight
    # In the first backward pass.
    weight.register_hook(lambda _: None if stop.stopped else os.kill(os.getpid(), number))
    training.train()
    given_back = signal.signal(number, before)
    assert stop.stopped
    assert training.state.global_step == 1
    assert last_whole_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert (given_back, signal.getsignal(signal.SIGINT)) == (signal.SIG_DFL, of_ctrl_c)


def test_a_tracker_that_fails_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for event in ("on_log", "on_train_end"):
        monkeypatch.setattr(TensorBoardCallback, event, full)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    trainer = small_trainer(tmp_path, lottery(), report_to="tensorboard")
    trainer.train()
    assert trainer.state.global_step == 2
    assert caplog.text.count("TensorBoardCallback failed: OSError(28") == 4  # two updates, the last row, the end
