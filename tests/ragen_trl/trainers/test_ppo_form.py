"""The PPO forms end to end: a critic beside the policy, its warm-up, its checkpoints, and what is exported."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ragen_trl import StarPOTrainer
from ragen_trl.algorithms.gae import token_gae
from ragen_trl.batching.batch import collate
from ragen_trl.batching.rollout_batch import RolloutBatch
from tests.support.ragen_trl.trainers import lottery, parameters, small_model, small_trainer

CRITIC = ("value_loss", "clip_fraction", "grad_norm", "explained_variance", "value_mean", "return_mean")
FORMS = ("gae", "turn_gae", "bi_level_gae")


def lora() -> LoraConfig:
    return LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


class Spy(StarPOTrainer):
    """Keeps rollout batches and advantages, and in which updates the policy learns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.learnt: list[RolloutBatch] = []
        self.credited: list[torch.Tensor] = []
        self.losses: list[int] = []
        super().__init__(*args, **kwargs)

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        self.learnt.append(rollout)
        self.credited.append(super().advantages(rollout))
        return self.credited[-1]

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.losses.append(self.state.global_step)
        return super().policy_loss(model, inputs)


def make(folder: Path, advantage: str = "gae", **options: Any) -> Any:
    defaults: dict[str, Any] = {"learning_rate": 1e-2}
    if advantage in FORMS:
        defaults["critic_learning_rate"] = 1e-2
    return small_trainer(folder, lottery(draws=3), trainer=Spy, advantage=advantage, **{**defaults, **options})


def critic_weights(trainer: Any) -> list[torch.Tensor]:
    return [value.detach().clone() for value in trainer.critic.network.parameters]


def rows(trainer: Any) -> list[dict[str, Any]]:
    """What was logged of each update."""
    return [row for row in trainer.state.log_history if "reward" in row]


@pytest.mark.parametrize("advantage", FORMS)
def test_policy_and_critic_both_learn_and_say_so(tmp_path: Path, advantage: str) -> None:
    trainer = make(tmp_path, advantage, max_steps=2)
    policy, critic = parameters(trainer), critic_weights(trainer)
    trainer.train()
    assert all(not torch.equal(value, policy[name]) for name, value in parameters(trainer).items())
    assert all(not torch.equal(*pair) for pair in zip(critic_weights(trainer), critic, strict=True))
    for row in rows(trainer):
        assert all(f"critic/{name}" in row for name in CRITIC)
    first, second = rows(trainer)
    assert (first["critic/value_mean"], first["critic/explained_variance"]) == (0.0, 0.0)  # a new critic says 0
    assert first["critic/value_loss"] > 0
    assert second["critic/value_mean"] != 0


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "bi_level_gae"])
def test_a_critic_judges_trajectories_that_are_alone_in_their_group(tmp_path: Path, advantage: str) -> None:
    """One trajectory a start state has no spread to filter by; the filter refused it, and no test had trained so."""
    trainer = small_trainer(tmp_path, lottery(), advantage=advantage, num_generations=1, max_steps=2)
    before = parameters(trainer)
    trainer.train()
    first, second = trainer.state.log_history[:2]
    assert first["filter/kept_groups"] == first["filter/trajectories_sampled"] == second["filter/trajectories_used"]
    assert any(not torch.equal(before[name], value) for name, value in parameters(trainer).items())
    assert first["entropy"] == first["entropy"]


def test_no_critic_where_none_is_needed(tmp_path: Path) -> None:
    trainer = make(tmp_path, "group", max_steps=1)
    trainer.train()
    assert trainer.critic is None
    assert not any(key.startswith("critic/") for key in rows(trainer)[0])


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
    logged = rows(trainer)[0]
    assert logged["critic/return_mean"] == pytest.approx(target.mean().item(), rel=1e-5)
    assert logged["critic/value_loss"] == pytest.approx((target.square().mean() / 2).item(), rel=1e-4)


def test_cut_episodes_end_with_the_critics_value(tmp_path: Path) -> None:
    """Of three draws two turns are played. A limit of turns is announced in every message, so it must be asked for."""
    options: dict[str, Any] = {"whiten_advantages": False, "max_steps": 2, "gamma": 0.9, "bootstrap": "all"}
    trainer = small_trainer(tmp_path, lottery(draws=3, max_turns=2), trainer=Spy, advantage="gae", **options)
    asked: list[tuple[torch.Tensor, torch.Tensor]] = []
    critic = trainer.critic
    assert critic is not None
    with torch.no_grad():
        critic.network.head.bias.fill_(0.5)
    values = critic.values

    def spy(*args: Any) -> Any:
        asked.append(values(*args))
        return asked[-1]

    critic.values = spy  # type: ignore[method-assign]
    trainer.train()
    for rollout, columns, (value, after) in zip(trainer.learnt, trainer.credited, asked, strict=True):  # type: ignore[attr-defined]
        cut = [one.truncated for one in rollout.trajectories]
        assert any(cut) and not all(cut)
        assert (after != 0).tolist() == cut
        mask = collate(rollout.trajectories, 0)["action_mask"]
        rewards = torch.zeros_like(value)
        for row, one in enumerate(rollout.trajectories):
            place = 0
            for turn in one.turns:
                place += len(turn.prompt_ids) + len(turn.reply_ids)
                rewards[row, place - 1] = turn.reward
        expected, _ = token_gae(rewards, value, mask, 0.9, 1.0, after)
        for row, one in enumerate(rollout.trajectories):
            first, end = len(one.turns[0].prompt_ids), len(one.token_ids)
            torch.testing.assert_close(columns[row, : end - first], expected[row, first:end])


@pytest.mark.parametrize("rollouts", [1, 2])
@pytest.mark.parametrize("peft", [False, True])
def test_in_warm_up_the_critic_learns_alone(tmp_path: Path, peft: bool, rollouts: int) -> None:
    """Weight decay and momentum would move the policy even by an update of zeros."""
    options: dict[str, Any] = {"critic_warmup_steps": 2, "max_steps": 2, "weight_decay": 0.5, "entropy_coef": 0.1}
    schedule = {"gradient_accumulation_steps": rollouts, "steps_per_generation": 1}
    trainer = make(tmp_path, peft_config=lora() if peft else None, **options, **schedule)
    policy, critic = parameters(trainer), critic_weights(trainer)
    trainer.train()
    assert all(torch.equal(value, policy[name]) for name, value in parameters(trainer).items())
    assert all(not torch.equal(*pair) for pair in zip(critic_weights(trainer), critic, strict=True))
    assert trainer.losses == []
    assert all("critic/value_loss" in row for row in rows(trainer))
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_after_the_warm_up_the_policy_learns_in_every_update(tmp_path: Path, iterations: int) -> None:
    """Regression: all updates on a rollout from the warm-up were left out, with four iterations all of this run."""
    trainer = make(tmp_path, critic_warmup_steps=1, num_iterations=iterations, max_steps=4)
    before = parameters(trainer)
    trainer.train()
    assert trainer.losses == [1, 2, 3]
    assert any(not torch.equal(value, before[name]) for name, value in parameters(trainer).items())


@pytest.mark.parametrize("peft", [False, True])
def test_a_resumed_run_equals_an_unbroken_one_bit_for_bit(tmp_path: Path, peft: bool) -> None:
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}

    def trainer() -> Any:
        torch.manual_seed(5)  # of the adapter's first matrices
        return make(tmp_path, peft_config=lora() if peft else None, **options)

    unbroken = trainer()
    unbroken.train()
    folder = tmp_path / "checkpoint-2"
    assert (folder / "critic" / "critic.json").is_file()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(folder))
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert all(torch.equal(*pair) for pair in zip(critic_weights(resumed), critic_weights(unbroken), strict=True))
    for one, other in zip(rows(resumed)[2:], rows(unbroken)[2:], strict=True):
        for key in (f"critic/{name}" for name in CRITIC):
            assert one[key] == other[key]
    assert len(resumed.learnt) == 2


def test_a_checkpoint_without_a_critic_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    make(tmp_path, "group", **options).train()
    with pytest.raises(ValueError, match="holds no critic.*resume from a checkpoint of a run with a critic"):
        make(tmp_path, "gae", **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_a_warm_up_that_was_stopped_goes_on(tmp_path: Path) -> None:
    options: dict[str, Any] = {"critic_warmup_steps": 3, "max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    first = make(tmp_path, **options)
    before = parameters(first)
    first.train()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.losses == []
    assert all(torch.equal(value, before[name]) for name, value in parameters(resumed).items())
    assert all(torch.equal(*pair) for pair in zip(critic_weights(resumed), critic_weights(first), strict=True))


def test_an_exported_model_has_no_critic(tmp_path: Path) -> None:
    trainer = make(tmp_path, max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    assert not (tmp_path / "model" / "critic").exists()
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(reloaded) is type(small_model())
    trained = parameters(trainer)
    assert {name for name, _ in reloaded.named_parameters()} == trained.keys()
    assert all(torch.equal(value, trained[name]) for name, value in reloaded.named_parameters())


def test_an_exported_adapter_has_no_critic(tmp_path: Path) -> None:
    trainer = make(tmp_path, peft_config=lora(), max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    for folder in (tmp_path / "adapter", tmp_path / "checkpoint-1"):
        weights = load_file(folder / "adapter_model.safetensors")
        assert weights
        assert not any("critic" in name for name in weights)
        assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4
    assert not list((tmp_path / "adapter").rglob("*critic*"))
    reloaded = PeftModel.from_pretrained(small_model(), str(tmp_path / "adapter"))
    assert list(reloaded.peft_config) == ["default"]
    assert list(trainer.model.peft_config) == ["default"]
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(reloaded.eval()(ids).logits, trainer.model.eval()(ids).logits)


@pytest.mark.parametrize("advantage", ["group", "gae"])
@pytest.mark.parametrize("peft", [False, True])
def test_without_a_kl_penalty_no_reference_model_is_kept(tmp_path: Path, advantage: str, peft: bool) -> None:
    trainer = make(tmp_path, advantage, beta=0.0, peft_config=lora() if peft else None)
    assert trainer.ref_model is None
    assert not peft or list(trainer.model.peft_config) == ["default"]


def test_several_epochs_and_minibatches_for_both(tmp_path: Path) -> None:
    """Two updates of the policy on each half of a rollout, and as many of the critic: 2 · 2 a rollout."""
    trainer = make(tmp_path, max_steps=8, steps_per_generation=2, num_iterations=2, learning_rate=1e-3)
    taken: list[int] = []
    trainer.critic._optimizer.register_step_post_hook(lambda *_: taken.append(1))
    trainer.train()
    assert len(trainer.learnt) == 2
    assert len(trainer.losses) == 8
    assert len(taken) == 8
    deviations = [row["sampling/ratio_deviation_max"] for row in trainer.state.log_history[:8]]
    assert deviations[0] < 1e-3 < deviations[3]
    assert deviations[4] < 1e-3 < deviations[7]


def test_a_critic_sees_only_what_the_filter_let_through(tmp_path: Path) -> None:
    trainer = make(tmp_path, per_device_train_batch_size=16, filter_ratio=0.5, max_steps=1)
    trainer.train()
    (rollout,) = trainer.learnt
    assert len(rollout.trajectories) == 8
    assert trainer.credited[0].shape == (8, rollout.completion_length)


def test_a_rollout_that_teaches_nothing_leaves_both_as_they_are(tmp_path: Path) -> None:
    options: dict[str, Any] = {"advantage": "gae", "filter_ratio": 0.5, "weight_decay": 0.5, "max_steps": 2}
    trainer = small_trainer(tmp_path, lottery(win=0.0), trainer=Spy, **options)
    policy, critic = parameters(trainer), critic_weights(trainer)
    trainer.train()
    assert all(torch.equal(value, policy[name]) for name, value in parameters(trainer).items())
    assert all(torch.equal(*pair) for pair in zip(critic_weights(trainer), critic, strict=True))
    assert [row["filter/skipped"] for row in rows(trainer)] == [1, 1]


def test_a_lora_policy_s_base_is_shared_and_never_moves(tmp_path: Path) -> None:
    trainer = make(tmp_path, peft_config=lora(), max_steps=2)
    before = parameters(trainer)
    trainer.train()
    moved = {name for name, value in parameters(trainer).items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "lora_" in name}
    own = {id(value) for value in trainer.model.parameters()}
    assert not own & {id(value) for value in trainer.critic.network.parameters}
