"""StarPOTrainer end to end on the tiny model: what is trained, by how much, and what is not."""

import gc
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from peft import LoraConfig, PeftModel

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer
from ragen_trl.errors import UserError
from ragen_trl.rollout import loop
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.training.checkpoints import whole_checkpoints
from tests.support.ragen_trl.trainers import (
    TOKENIZER,
    Spy,
    contexts,
    logged,
    lottery,
    parameters,
    small_model,
    small_trainer,
)


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


def test_a_group_shares_its_start_state_and_not_the_outcomes(tmp_path: Path) -> None:
    trainer: Any = small_trainer(tmp_path, lottery(), trainer=Spy, max_steps=1, per_device_train_batch_size=32)
    trainer.train()
    firsts = [{member.turns[0].observation for member in group} for group in trainer.groups()]
    assert all(len(first) == 1 for first in firsts)
    assert len(set.union(*firsts)) == 8
    assert any(len({member.episode_return for member in group}) == 2 for group in trainer.groups())


def test_nothing_to_learn_changes_nothing(tmp_path: Path) -> None:
    """With weight decay and momentum, an update of zeros would still move the weights."""
    options: dict[str, Any] = {"config": StarPOSConfig, "weight_decay": 0.5, "learning_rate": 0.1}
    trainer = small_trainer(tmp_path, lottery(win=0.0), **options)
    before = parameters(trainer)
    trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
    assert logged(trainer, "filter/skipped") == [1.0, 1.0]


def test_lora_trains_saves_and_reloads(tmp_path: Path) -> None:
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = small_trainer(tmp_path, lottery(), peft_config=lora, learning_rate=1e-2, max_steps=2)
    before = parameters(trainer)
    trainer.train()
    after = parameters(trainer)
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {name for name in after if "lora_" in name}
    trainer.save_model(str(tmp_path / "adapter"))
    reloaded = PeftModel.from_pretrained(small_model(), str(tmp_path / "adapter")).eval()
    ids = torch.tensor([TOKENIZER("Actions: Left")["input_ids"]])
    trained = trainer.model.eval()
    torch.testing.assert_close(reloaded(ids).logits, trained(ids).logits)
    assert not torch.allclose(small_model()(ids).logits, trained(ids).logits, atol=1e-4)


def test_defaults_are_those_of_the_papers() -> None:
    plain, stable = StarPOConfig(output_dir="x", bf16=False), StarPOSConfig(output_dir="x", bf16=False)
    assert (plain.filter_ratio, plain.beta, plain.epsilon, plain.epsilon_high) == (1.0, 0.001, 0.2, None)
    assert (stable.filter_ratio, stable.beta, stable.epsilon, stable.epsilon_high) == (0.25, 0.0, 0.2, 0.28)
    assert (plain.groups_per_generation, plain.num_generations, plain.num_rollouts) == (8, 16, 200)
    assert (plain.max_turns, plain.max_actions_per_turn, plain.max_actions, plain.format_penalty) == (5, 5, 10, -0.1)


def test_nan_in_every_episode_ends_training_by_name(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(win=float("nan")), max_steps=1)
    with pytest.raises(UserError, match=r"turn 1 after reset\(seed=10000\), has the reward nan, which is not finite"):
        trainer.train()


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
