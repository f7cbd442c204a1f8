"""The PPO forms end to end: a critic beside the policy, its warm-up, schedule, checkpoints, and what is exported."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import TrainerCallback

from ragen_trl import StarPOTrainer
from ragen_trl.credit.estimators import critic_steps
from tests.support.ragen_trl.trainers import (
    Spy,
    as_with_deepspeed,
    lottery,
    on_cpu,
    parameters,
    small_model,
    small_trainer,
)

CRITIC = ("value_loss", "clip_fraction", "grad_norm", "explained_variance", "value_mean", "return_mean")
RATE = 1e-2


def lora() -> LoraConfig:
    torch.manual_seed(5)  # of the adapter's first matrices
    return LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


def make(folder: Path, advantage: str = "gae", trainer: Any = Spy, draws: int = 3, **options: Any) -> Any:
    """A trainer of rollouts of 8 trajectories in groups of 4, and a list of its critic's steps by rollout."""
    defaults = {"learning_rate": RATE, "critic_learning_rate": RATE, "advantage": advantage}
    made: Any = small_trainer(folder, lottery(draws=draws), trainer=trainer, **{**defaults, **options})
    made.taken = []
    made.critic._optimizer.register_step_post_hook(lambda *_: made.taken.append(made.state.global_step))
    return made


def critic_weights(trainer: Any) -> list[torch.Tensor]:
    return [value.detach().clone() for value in trainer.critic.parameters]


def rows(trainer: Any) -> list[dict[str, Any]]:
    """What was logged of each update."""
    return [row for row in trainer.state.log_history if "reward" in row]


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "bi_level_gae"])
def test_policy_and_critic_both_learn_and_say_so(tmp_path: Path, advantage: str) -> None:
    """Also from trajectories that are alone in their group, which have no spread to filter by."""
    trainer = make(tmp_path, advantage, num_generations=1)
    policy, critic = parameters(trainer), critic_weights(trainer)
    trainer.train()
    assert all(not torch.equal(value, policy[name]) for name, value in parameters(trainer).items())
    assert all(not torch.equal(*pair) for pair in zip(critic_weights(trainer), critic, strict=True))
    first, second = rows(trainer)
    assert all(f"critic/{name}" in row for row in (first, second) for name in CRITIC)
    assert (first["critic/value_mean"], first["critic/explained_variance"]) == (0.0, 0.0)  # a new critic says 0
    assert first["critic/value_loss"] > 0 != second["critic/value_mean"]


def test_the_first_advantages_are_whitened_returns_to_go(tmp_path: Path) -> None:
    """A new critic says 0, and γ = λ = 1: what a token is credited with is what was won from there on."""
    trainer = make(tmp_path, max_steps=1)
    trainer.train()
    (rollout,), (columns,) = trainer.learnt, trainer.credited
    won, places = [], []
    for row, one in enumerate(rollout.trajectories):
        first = len(one.turns[0].prompt_ids)
        for column, turn in enumerate(one.turn_ids[first:]):
            if turn >= 0:
                won.append(sum(later.reward for later in one.turns[turn:]))
                places.append((row, column))
    target = torch.tensor(won)
    expected = (target - target.mean()) / target.std()
    assert len(set(won)) > 2
    torch.testing.assert_close(torch.stack([columns[place] for place in places]), expected, rtol=1e-4, atol=1e-4)
    assert columns.count_nonzero() <= len(places)
    (row,) = rows(trainer)
    assert row["critic/return_mean"] == pytest.approx(target.mean().item(), rel=1e-5)
    assert row["critic/value_loss"] == pytest.approx((target.square().mean() / 2).item(), rel=1e-4)


@pytest.mark.parametrize(("peft", "micro_batches"), [(False, 2), (True, 1)])
def test_in_warm_up_the_critic_learns_alone(tmp_path: Path, peft: bool, micro_batches: int) -> None:
    """Weight decay and momentum would move the policy even by an update of zeros."""
    options: dict[str, Any] = {"critic_warmup_steps": 2, "max_steps": 2, "weight_decay": 0.5, "entropy_coef": 0.1}
    options["gradient_accumulation_steps"] = micro_batches
    trainer = make(tmp_path, peft_config=lora() if peft else None, **options)
    policy, critic = parameters(trainer), critic_weights(trainer)
    trainer.train()
    assert all(torch.equal(value, policy[name]) for name, value in parameters(trainer).items())
    assert all(not torch.equal(*pair) for pair in zip(critic_weights(trainer), critic, strict=True))
    assert trainer.batches == [] and trainer.state.global_step == 2
    assert all("critic/value_loss" in row for row in rows(trainer))


def test_in_warm_up_the_policy_has_no_gradient_where_every_step_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed takes every step: its optimizer must not begin with moments of gradients that were not to count."""
    monkeypatch.setattr(StarPOTrainer, "compute_loss", as_with_deepspeed(StarPOTrainer.compute_loss))
    trainer = make(tmp_path, critic_warmup_steps=2, max_steps=3, entropy_coef=0.1)
    moments: list[float] = []

    class Moments(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            kept = trainer.optimizer.state_dict()["state"].values()
            moments.append(max((float(one["exp_avg"].abs().max()) for one in kept), default=0.0))

    trainer.add_callback(Moments())
    trainer.train()
    assert moments[:2] == [0.0, 0.0] and moments[2] > 0
    first, second, third = rows(trainer)
    assert "policy_loss" not in first and "policy_loss" not in second and "policy_loss" in third


@pytest.mark.parametrize("iterations", [1, 4])
def test_after_the_warm_up_the_policy_learns_in_every_update(tmp_path: Path, iterations: int) -> None:
    """Regression: all updates on a rollout from the warm-up were left out, with four iterations all of this run."""
    trainer = make(tmp_path, critic_warmup_steps=1, num_iterations=iterations, max_steps=4)
    before = parameters(trainer)
    trainer.train()
    assert trainer.updates == [1, 2, 3]
    assert any(not torch.equal(value, before[name]) for name, value in parameters(trainer).items())


def test_a_resumed_run_equals_an_unbroken_one_bit_for_bit_and_exports_no_critic(tmp_path: Path) -> None:
    """With LoRA, whose base both share and neither moves."""
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    unbroken = make(tmp_path, peft_config=lora(), **options)
    before = parameters(unbroken)
    unbroken.train()
    end = parameters(unbroken)
    assert {name for name in before if not torch.equal(before[name], end[name])} == {n for n in before if "lora_" in n}
    own = {id(value) for value in unbroken.model.parameters()}
    assert not own & {id(value) for value in unbroken.critic.parameters}
    resumed = make(tmp_path, peft_config=lora(), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert all(torch.equal(*pair) for pair in zip(critic_weights(resumed), critic_weights(unbroken), strict=True))
    for one, other in zip(rows(resumed)[2:], rows(unbroken)[2:], strict=True):
        for key in CRITIC:
            assert one[f"critic/{key}"] == other[f"critic/{key}"]
    assert len(resumed.learnt) == 2
    unbroken.save_model(str(tmp_path / "adapter"))
    for folder in (tmp_path / "adapter", tmp_path / "checkpoint-4"):
        weights = load_file(folder / "adapter_model.safetensors")
        assert weights and not any("critic" in name for name in weights)
    assert not list((tmp_path / "adapter").rglob("*critic*"))
    reloaded = PeftModel.from_pretrained(small_model(), str(tmp_path / "adapter"))
    assert list(reloaded.peft_config) == list(unbroken.model.peft_config) == ["default"]
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(reloaded.eval()(ids).logits, unbroken.model.eval()(ids).logits)


@pytest.mark.parametrize(
    ("trajectories", "options", "expected"),
    [
        (32, {"critic_batch_size": 32}, (1, 1)),  # StarPO-S keeps a quarter: one step, as in RAGEN
        (33, {"critic_batch_size": 32, "critic_epochs": 3}, (2, 3)),
        (128, {}, (4, 1)),
        (128, {"gradient_accumulation_steps": 32}, (1, 1)),
        (128, {"num_iterations": 2, "critic_epochs": 1, "filter_ratio": 0.5}, (1, 1)),
    ],
)
def test_steps_of_the_critic(trajectories: int, options: dict[str, Any], expected: tuple[int, int]) -> None:
    assert critic_steps(trajectories, on_cpu(advantage="gae", **options)) == expected
