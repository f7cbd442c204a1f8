"""StarPOTrainer end to end on the tiny model: what is trained, by how much, and what is not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import TrainerCallback

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer, evaluate
from tests.support.ragen_trl.trainers import (
    TOKENIZER,
    LastRollout,
    logged,
    lottery,
    parameters,
    small_model,
    small_trainer,
)


class Spy(StarPOTrainer):
    """Keeps every micro-batch and every trajectory it sees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.trajectories: list[Any] = []
        super().__init__(*args, **kwargs)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.batches.append(inputs)
        return super()._compute_loss(model, inputs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        self.trajectories += played
        return played


def contexts(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The unpadded rows of a batch, sorted."""
    keys = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    rows = zip(*(batch[key] for key in keys), strict=True)
    return sorted(tuple(torch.cat([p[m.bool()], c[n.bool()]]).tolist()) for p, m, c, n in rows)


def test_every_parameter_moves_and_sampled_tokens_are_the_trained_ones(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(), trainer=Spy, max_steps=3, learning_rate=1e-3)
    before = parameters(trainer)
    trainer.train()
    unmoved = [name for name, value in parameters(trainer).items() if torch.equal(value, before[name])]
    assert unmoved == []
    trained = sorted(
        tuple(ids[mask.bool()].tolist())
        for batch in trainer.batches
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"] * batch["tool_mask"], strict=True)
    )
    sampled = sorted(
        tuple(token for turn in trajectory.turns for token in turn.reply_ids) for trajectory in trainer.trajectories
    )
    assert trained == sampled
    assert len(sampled) == 3 * 8


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_context_is_trained_as_it_was_sampled_with_importance_ratio_one(
    tmp_path: Path, temperature: float
) -> None:
    trainer = small_trainer(tmp_path, trainer=Spy, max_steps=1, temperature=temperature)
    trainer.train()
    (batch,) = trainer.batches
    assert contexts(batch) == sorted(trajectory.token_ids for trajectory in trainer.trajectories)
    assert max(len(trajectory.turns) for trajectory in trainer.trajectories) == 2
    assert trainer.state.log_history[0]["sampling/ratio_deviation_max"] < 1e-3


def test_group_shares_start_state_and_not_outcomes(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(), trainer=Spy, max_steps=1, per_device_train_batch_size=32)
    trainer.train()
    groups = [trainer.trajectories[i : i + 4] for i in range(0, 32, 4)]
    firsts = [{member.turns[0].observation for member in group} for group in groups]
    assert all(len(first) == 1 for first in firsts)
    assert len(set.union(*firsts)) == 8
    assert any(len({member.episode_return for member in group}) == 2 for group in groups)


def test_nothing_to_learn_changes_nothing(tmp_path: Path) -> None:
    """All returns equal: with weight decay and momentum in the optimizer, an update of zeros would still move it."""
    trainer = small_trainer(
        tmp_path, lottery(win=0.0), config=StarPOSConfig, weight_decay=0.5, learning_rate=0.1, max_steps=2
    )
    before = parameters(trainer)
    trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
    assert [row["filter/skipped"] for row in trainer.state.log_history if "filter/skipped" in row] == [1.0, 1.0]


@pytest.mark.parametrize("kept", [[], [0], [1]], ids=str)
def test_an_update_of_two_rollouts_is_none_if_both_keep_nothing(tmp_path: Path, kept: list[int]) -> None:
    """Regression: the momentum of the first update moved the weights again. ``kept``: which rollouts keep groups."""

    class Second(StarPOTrainer):
        def select_groups(self, rollout: Any) -> list[int]:
            is_first = self.state.global_step == 0
            return super().select_groups(rollout) if is_first or int(self.micro_step > 0) in kept else []

    class Keeps(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            seen.append(parameters(trainer))

    seen: list[dict[str, torch.Tensor]] = []
    options = {"per_device_train_batch_size": 2, "steps_per_generation": 2, "gradient_accumulation_steps": 4}
    trainer = small_trainer(
        tmp_path, lottery(draws=3), trainer=Second, learning_rate=1e-3, callbacks=[Keeps()], **options
    )
    trainer.train()
    stayed = [torch.equal(value, seen[0][name]) for name, value in seen[1].items()]
    assert not any(stayed) if kept else all(stayed)


def test_filter_trains_on_the_most_uncertain_groups_only(tmp_path: Path) -> None:
    trainer = small_trainer(
        tmp_path, lottery(), config=StarPOSConfig, trainer=Spy, max_steps=1, per_device_train_batch_size=32
    )
    trainer.train()
    stds = [np.std([m.episode_return for m in trainer.trajectories[i : i + 4]], ddof=1) for i in range(0, 32, 4)]
    best = sorted(np.argsort(-np.array(stds), kind="stable")[:2])  # a quarter of 8 groups
    kept = sorted(m.token_ids for i in best for m in trainer.trajectories[4 * i : 4 * i + 4])
    (batch,) = trainer.batches
    assert contexts(batch) == kept
    row = trainer.state.log_history[0]
    counts = [row[f"filter/{name}"] for name in ("kept_groups", "trajectories_sampled", "trajectories_used")]
    assert counts == [2, 32, 8]


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


@pytest.mark.parametrize("peft", [False, True])
def test_kl_penalty_needs_a_reference(tmp_path: Path, peft: bool) -> None:
    small_model().save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if peft else None
    trainer = small_trainer(
        tmp_path, lottery(), model=str(tmp_path / "model"), beta=0.1, peft_config=lora, learning_rate=1e-2
    )
    trainer.train()
    kl = [row["kl"] for row in trainer.state.log_history if "kl" in row]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[1] > 1e-6


def test_extra_reward_functions_are_added_with_their_weights(tmp_path: Path) -> None:
    def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(len(ids)) for ids in completion_ids]

    trainer = small_trainer(
        tmp_path, lottery(), trainer=Spy, reward_funcs=[length], reward_weights=[1.0, 0.5], max_steps=1
    )
    last = LastRollout(trainer)
    trainer.train()
    expected = [t.episode_return + 0.5 * len(t.turns[0].reply_ids) for t in trainer.trajectories]
    assert (last.rewards @ torch.tensor([1.0, 0.5])).tolist() == pytest.approx(expected)


def test_several_updates_a_rollout(tmp_path: Path) -> None:
    """Two updates on one rollout batch, twice over: old log-probabilities are needed and the ratio leaves 1."""
    trainer = small_trainer(
        tmp_path, lottery(), trainer=Spy, max_steps=4, steps_per_generation=2, num_iterations=2, learning_rate=1e-2
    )
    trainer.train()
    assert len(trainer.trajectories) == 16
    assert len(trainer.batches) == 4
    deviations = [row["sampling/ratio_deviation_max"] for row in trainer.state.log_history[:4]]
    assert deviations[0] < 1e-3 < deviations[-1]


def test_evaluation_during_training_reports_success_on_held_out_seeds(tmp_path: Path) -> None:
    trainer = small_trainer(
        tmp_path, lottery(), trainer=Spy, eval_strategy="steps", eval_steps=1, num_eval_seeds=16, max_steps=1
    )
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "eval_success" in row]
    evaluated = [t for t in trainer.trajectories if t.seed < 10_000]
    assert len(evaluated) == 16
    assert row["eval_success"] == pytest.approx(np.mean([t.success for t in evaluated]))


def test_a_trainers_policy_outlives_another_configuration(tmp_path: Path) -> None:
    """Making one resets Accelerate's global state, which `accelerator.autocast` looks up."""
    trainer = small_trainer(tmp_path / "a", lottery())
    args = StarPOConfig(output_dir=str(tmp_path / "b"), use_cpu=True, max_turns=1)
    assert evaluate(trainer.policy(), lottery(), args, episodes=4).n == 4


def test_completions_are_logged_as_in_trl(tmp_path: Path) -> None:
    import pandas

    trainer = small_trainer(tmp_path, lottery(), max_steps=1, log_completions=True)
    trainer.train()
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert len(table) == 8
    assert table["prompt"][0][0]["content"].startswith("Say something.")
    assert set(table["environment_return"]) <= {0.0, 1.0}


def test_defaults_are_those_of_the_papers() -> None:
    plain, stable = StarPOConfig(output_dir="x", bf16=False), StarPOSConfig(output_dir="x", bf16=False)
    assert (plain.filter_ratio, plain.beta, plain.epsilon, plain.epsilon_high) == (1.0, 0.001, 0.2, None)
    assert (stable.filter_ratio, stable.beta, stable.epsilon, stable.epsilon_high) == (0.25, 0.0, 0.2, 0.28)
    assert (plain.groups_per_generation, plain.num_generations, plain.num_rollouts) == (8, 16, 200)
    assert (plain.max_turns, plain.max_actions_per_turn, plain.max_actions, plain.format_penalty) == (5, 5, 10, -0.1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_p", 0.1),
        ("repetition_penalty", 1.2),
        ("generation_kwargs", {"num_beams": 2}),
    ],
)
def test_an_option_that_rollouts_would_ignore_is_refused(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        StarPOConfig(output_dir=str(tmp_path), **{option: value})


def test_env_kwargs_that_are_no_json_are_refused(tmp_path: Path) -> None:
    """A string passed through unread would train on the default environment."""
    with pytest.raises(ValueError, match="is_slippery=false"):
        StarPOConfig(output_dir=str(tmp_path), env_kwargs="is_slippery=false")


def test_start_states_of_a_small_set_come_in_passes(tmp_path: Path) -> None:
    """TRL's own shuffle would mix the passes, so that one rollout holds a start state twice."""
    trainer = small_trainer(tmp_path, lottery(), trainer=Spy, num_train_seeds=2, max_steps=4)
    trainer.train()
    rollouts = [trainer.trajectories[i : i + 8] for i in range(0, 32, 8)]
    assert all({t.seed for t in rollout} == {10_000, 10_001} for rollout in rollouts)


def test_the_completions_table_shows_the_advantages_that_are_trained(tmp_path: Path) -> None:
    trainer = small_trainer(
        tmp_path, lottery(), trainer=Spy, filter_ratio=0.5, baseline="leave_one_out", scale_rewards="none", max_steps=1
    )
    trainer.train()
    shown = list(trainer._logs["advantages"])
    (batch,) = trainer.batches
    assert sorted(value for value in shown if value) == pytest.approx(sorted(batch["advantages"].tolist()))
    assert shown.count(0.0) == 4


def test_nan_from_the_environment_is_an_error(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(win=float("nan")), max_steps=1)
    with pytest.raises(ValueError, match="nan.*finite"):
        trainer.train()


def test_resume_true_takes_the_last_whole_checkpoint(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    small_trainer(tmp_path, lottery(), **options).train()
    (tmp_path / "checkpoint-3" / "trainer_state.json").unlink()
    resumed = small_trainer(tmp_path, lottery(), trainer=Spy, **options)
    resumed.train(resume_from_checkpoint=True)
    assert len(resumed.trajectories) == 8  # step 3 alone
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        small_trainer(tmp_path / "empty", lottery()).train(resume_from_checkpoint=True)


class SavingAfterThree(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save |= state.global_step == 3


def test_a_checkpoint_between_two_updates_on_one_rollout_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "steps_per_generation": 2}
    small_trainer(tmp_path, lottery(), callbacks=[SavingAfterThree()], **options).train()
    resumed = small_trainer(tmp_path, lottery(), **options)
    with pytest.raises(ValueError, match="checkpoint-3.*2 divides"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_run_that_is_over_takes_no_further_update(tmp_path: Path) -> None:
    """Regression: its last checkpoint was refused; Transformers takes one more step where an epoch is not over."""
    options: dict[str, Any] = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2, "steps_per_generation": 2}
    over = small_trainer(tmp_path, lottery(), **options)
    over.train()
    resumed = small_trainer(tmp_path, lottery(), trainer=Spy, **options)
    resumed.train(resume_from_checkpoint=True)
    assert (resumed.state.global_step, resumed.batches, resumed.trajectories) == (3, [], [])
    expected = parameters(over)
    assert all(torch.equal(value, expected[name]) for name, value in parameters(resumed).items())


class BreaksOff(StarPOTrainer):
    """Ctrl-C in one of the micro-batches, counted from 1 over all updates."""

    at = 0

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        self.at -= 1
        if self.at == 0:
            raise KeyboardInterrupt
        return super().policy_loss(model, inputs)


def test_an_adaptive_entropy_bonus_forgets_the_update_in_which_a_training_broke_off(tmp_path: Path) -> None:
    """Regression: the first update of the next training averaged the tokens of two updates."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "use_adaptive_entropy": True}
    trainer = small_trainer(tmp_path, lottery(draws=2), trainer=BreaksOff, max_steps=2, **options)
    trainer.at = 3
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer._entropy_window_stats is not None
    seen = []
    loss = trainer.policy_loss

    def first_window(*args: Any) -> Any:
        seen.append(trainer._entropy_window_stats)
        return loss(*args)

    trainer.policy_loss = first_window  # type: ignore[method-assign]
    trainer.train()
    assert len(seen) == 8 and seen[0] is None


REBUILT = {"window_turns": 1, "importance_sampling_level": "sequence", "steps_per_generation": 4, "entropy_coef": 0.1}


@pytest.mark.parametrize(
    ("at", "options"),
    [(9, {}), (10, {}), (12, {}), (5, REBUILT), (6, REBUILT), (7, REBUILT)],
    ids=["first", "second", "last", "first of rebuilt contexts", "second of them", "in a second update on them"],
)
def test_a_training_that_broke_off_goes_on_in_the_same_trainer(
    tmp_path: Path, at: int, options: dict[str, Any]
) -> None:
    """Regression: it went on with what was left of the rollout, and every later update mixed two of them."""
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2 if options else 4, **options}
    options |= {"max_steps": 4, "learning_rate": 0.01, "save_strategy": "steps", "save_steps": 2}
    unbroken = small_trainer(tmp_path / "unbroken", lottery(draws=2), **options)
    unbroken.train()
    broken = small_trainer(tmp_path / "broken", lottery(draws=2), trainer=BreaksOff, **options)
    broken.at = at
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    broken.train(resume_from_checkpoint=True)
    expected = parameters(unbroken)
    assert all(torch.equal(value, expected[name]) for name, value in parameters(broken).items())
    for name in ("loss", "grad_norm", "sampling/ratio_deviation_max", "frac_reward_zero_std"):
        assert logged(broken, name) == logged(unbroken, name)
