"""StarPOTrainer end to end on the tiny model: what is trained and what is not; checkpoints, Ctrl-C and going on."""

import gc
import json
import os
import signal
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer
from ragen_trl.errors import UserError
from ragen_trl.rollout import loop
from ragen_trl.rollout.loop import EnvResetError
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


class BreaksOff(StarPOTrainer):
    """Ctrl-C in one of the micro-batches, counted from 1 over all updates."""

    at = 0

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return super().policy_loss(model, inputs)


REBUILT = {"window_turns": 1, "steps_per_generation": 4, "entropy_coef": 0.1}


@pytest.mark.parametrize(("at", "options"), [(10, {}), (7, REBUILT)], ids=["second", "in a second update on a rollout"])
def test_a_training_that_broke_off_goes_on_in_the_same_trainer(
    tmp_path: Path, at: int, options: dict[str, Any]
) -> None:
    """Regression: it went on with what was left of the rollout, and every later update mixed two of them."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2 if options else 4, **options}
    options |= {"max_steps": 4, "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 2}
    unbroken = small_trainer(tmp_path / "unbroken", lottery(draws=2), **options)
    unbroken.train()
    broken: Any = small_trainer(tmp_path / "broken", lottery(draws=2), trainer=BreaksOff, **options)
    broken.at = at
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    broken.train(resume_from_checkpoint=True)
    expected = parameters(unbroken)
    assert all(torch.equal(value, expected[name]) for name, value in parameters(broken).items())
    for name in ("loss", "grad_norm", "sampling/ratio_deviation_max", "frac_reward_zero_std"):
        assert logged(broken, name) == logged(unbroken, name)


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
