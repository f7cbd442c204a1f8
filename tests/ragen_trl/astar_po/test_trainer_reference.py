"""The reference of AStarPOTrainer: where it stands, that it stands still, when it is moved, and how a run goes on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import TrainerCallback

from ragen_trl.astar_po.value_cache import ValueCache
from tests.support.ragen_trl.astar_runs import Spy, astar, draws, log_likelihood, logged
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.references import change, logits, reference_logits
from tests.support.ragen_trl.trainers import lottery, parameters, small_model

LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
KINDS = ["full", "LoRA", "warm-started LoRA"]


def of_kind(kind: str, folder: Path) -> dict[str, Any]:
    """Options of a trainer whose policy is of a kind; each call makes the same policy again."""
    if kind == "full":
        return {}
    if kind == "LoRA":
        return {"peft_config": LORA}
    if not (folder / "adapter").exists():
        torch.manual_seed(0)
        warm = get_peft_model(small_model(), LORA)
        change(warm, by=0.1)
        warm.save_pretrained(folder / "adapter")
    return {"model": PeftModel.from_pretrained(small_model(), str(folder / "adapter"), is_trainable=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_policy_at_the_start_and_stays_there(tmp_path: Path, kind: str) -> None:
    trainer = astar(tmp_path / "run", draws(), learning_rate=1e-2, max_steps=3, **of_kind(kind, tmp_path))
    assert torch.equal(reference_logits(trainer.reference), policy_logits(trainer))
    before = reference_logits(trainer.reference)
    fingerprint = trainer.reference.fingerprint()
    trainer.train()
    log_ratios = logged(trainer, "astar/log_ratio")
    assert log_ratios[0] == 0.0 and logged(trainer, "kl")[0] == 0.0
    assert min(map(abs, log_ratios[1:])) > 1e-3
    assert torch.equal(reference_logits(trainer.reference), before)
    assert trainer.reference.fingerprint() == fingerprint
    assert not torch.allclose(policy_logits(trainer), before, atol=1e-3)
    if kind == "warm-started LoRA":  # its reference is not the base model
        assert not torch.allclose(before, logits(small_model()), atol=1e-3)
    elif kind == "LoRA":
        torch.testing.assert_close(before, logits(small_model()))


def policy_logits(trainer: Any) -> torch.Tensor:
    """Those of the policy as it is now."""
    return logits(trainer.accelerator.unwrap_model(trainer.model))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_logged_is_the_log_ratio_to_the_reference(tmp_path: Path, kind: str) -> None:
    """By another way: the log-likelihood of each trajectory under policy and reference, one at a time."""

    class Checked(Spy):
        expected: list[float] = []

        def _learn_from(self, rollout: Any, kept: Any) -> Any:
            model = self.accelerator.unwrap_model(self.model)
            own = likelihoods(model, rollout.trajectories)
            with self.reference.model() as reference:
                other = likelihoods(reference, rollout.trajectories)
            self.expected = [*self.expected, (own - other).mean().item()]
            return super()._learn_from(rollout, kept)

    options = {"learning_rate": 1e-2, "max_steps": 3, **of_kind(kind, tmp_path)}
    trainer = astar(tmp_path / "run", draws(), trainer=Checked, **options)
    trainer.train()
    assert logged(trainer, "astar/log_ratio") == pytest.approx(trainer.expected, abs=1e-4)


def likelihoods(model: Any, trajectories: Any) -> torch.Tensor:
    """(L,) sums of log-probabilities of the sampled tokens."""
    with torch.no_grad():
        return torch.stack([log_likelihood(model, trajectory) for trajectory in trajectories])


@pytest.mark.parametrize("kind", KINDS)
def test_a_refresh_moves_the_reference_to_the_policy(tmp_path: Path, kind: str) -> None:
    options = {"refresh_steps": 2, "max_steps": 5, "learning_rate": 1e-2, **of_kind(kind, tmp_path)}
    trainer = astar(tmp_path / "run", **options)
    trainer.train()
    assert trainer.estimated_at == [0, 2, 4]
    log_ratios = logged(trainer, "astar/log_ratio")
    assert [log_ratios[step] for step in (0, 2, 4)] == [0.0, 0.0, 0.0]
    assert min(abs(log_ratios[step]) for step in (1, 3)) > 1e-3
    assert logged(trainer, "astar/reference_episodes") == [32, 32, 64, 64, 96]
    with ValueCache(tmp_path / "run" / "values.sqlite") as cache:
        references = [content["reference"] for content in cache.keys().values()]
    assert len(set(references)) == 3
    assert references[2] == trainer.reference.fingerprint()


class Lucky(Spy):
    """From an update on the policy wins always, as far as its rewards tell; the reference never does so."""

    lucky_from = 3

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        if not self.accelerator.unwrap_model(self.model).training or self.state.global_step < self.lucky_from:
            return played
        return [replace(t, turns=(*t.turns[:-1], replace(t.turns[-1], reward=1.0))) for t in played]


STALE: dict[str, Any] = {
    "refresh_when_stale": True,
    "stale_window": 2,
    "per_device_train_batch_size": 32,
    "num_train_seeds": 32,
    "reference_samples": 8,
    "max_reference_samples": 8,
    "learning_rate": 1e-4,
}


def test_a_policy_that_beats_v_star_calls_for_a_new_one(tmp_path: Path) -> None:
    """Chance alone does not. The window of two rollouts is full of wins after the fifth, and then begins again."""
    trainer = astar(tmp_path, trainer=Lucky, max_steps=8, **STALE)
    trainer.train()
    assert trainer.estimated_at == [0, 5, 7]
    assert logged(trainer, "reward")[3:] == [1.0] * 5


def test_a_policy_that_stays_as_it_is_never_calls_for_one(tmp_path: Path) -> None:
    trainer = astar(tmp_path, max_steps=8, **STALE)
    trainer.train()
    assert trainer.estimated_at == [0]


SAVED: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2}


class StopAfter(TrainerCallback):
    """Ends training behind an update."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = control.should_training_stop or state.global_step == self.step


def assert_resumes(folder: Path, at: int, make: Any) -> None:
    """A run that is stopped and resumed plays, logs and ends as an unbroken one."""
    unbroken = make(folder / "unbroken")
    unbroken.train()
    stopped = make(folder / "stopped")
    stopped.add_callback(StopAfter(at))
    stopped.train()
    assert stopped.state.global_step == at
    resumed = make(folder / "stopped")
    resumed.train(resume_from_checkpoint=True)
    assert updates(resumed) == updates(unbroken)
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert resumed.values[0].starts == unbroken.values[0].starts
    assert resumed.reference.fingerprint() == unbroken.reference.fingerprint()
    assert stopped.played + resumed.played == unbroken.played
    assert stopped.reference_played + resumed.reference_played == unbroken.reference_played
    assert stopped.estimated_at + resumed.estimated_at == unbroken.estimated_at


def updates(trainer: Any) -> list[dict[str, Any]]:
    """What was logged of each update, without the clock."""
    return [row for row in timeless(trainer) if "loss" in row]


@pytest.mark.parametrize(("kind", "at"), [("full", 1), *((kind, 3) for kind in KINDS)])
def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path: Path, kind: str, at: int) -> None:
    """Stopped before or behind the refresh in the third update; start states without spread give way in both."""
    options = {**SAVED, "refresh_steps": 2, "max_steps": 4}
    assert_resumes(tmp_path, at, lambda run: astar(run, **options, **of_kind(kind, tmp_path)))


def test_a_resumed_run_becomes_stale_when_an_unbroken_one_does(tmp_path: Path) -> None:
    """The window of the last returns is part of a checkpoint."""
    assert_resumes(tmp_path, 4, lambda run: astar(run, trainer=Lucky, max_steps=6, **{**SAVED, **STALE}))


def test_a_resumed_run_accumulates_as_an_unbroken_one(tmp_path: Path) -> None:
    options = {**SAVED, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 4}
    assert_resumes(tmp_path, 2, lambda run: astar(run, **options))
    for steps in ({"steps_per_generation": 1}, {"num_generations": 2, "max_refills": 4, "num_train_seeds": 16}):
        assert_resumes(tmp_path / next(iter(steps)), 2, lambda run, steps=steps: astar(run, **{**options, **steps}))


def test_a_resumed_run_needs_no_cache(tmp_path: Path) -> None:
    unbroken = astar(tmp_path, max_steps=3, **SAVED)
    unbroken.train()
    (tmp_path / "values.sqlite").unlink()
    resumed = astar(tmp_path, max_steps=3, **SAVED)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert resumed.reference_played == []


def test_a_checkpoint_holds_the_reference_only_once_it_was_moved(tmp_path: Path) -> None:
    trainer = astar(tmp_path, refresh_steps=2, max_steps=3, **SAVED)
    trainer.train()
    held = [(tmp_path / f"checkpoint-{step}" / "reference" / "reference.safetensors").exists() for step in (1, 2, 3)]
    assert held == [False, False, True]
    state = json.loads((tmp_path / "checkpoint-3" / "astar_po.json").read_text())
    assert (state["last_refresh"], state["reanchored"]) == (2, True)


def paid(trajectory: Any, reward: float) -> Any:
    """The trajectory with another reward of its last turn."""
    return replace(trajectory, turns=(*trajectory.turns[:-1], replace(trajectory.turns[-1], reward=reward)))


class Solved(Spy):
    """From the third update on policy and reference always win lotteries that pay 1; all others pay half."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        if self.state.global_step < 2:
            return played
        solved = [env.unwrapped.win == 1.0 for env in envs]
        return [paid(t, 1.0 if won else t.episode_return / 2) for t, won in zip(played, solved, strict=True)]


def test_a_policy_that_has_solved_every_start_trains_on(tmp_path: Path) -> None:
    """At a refresh the new reference always wins: no V* can be told from another, and the old one is kept."""
    trainer = astar(tmp_path, lottery(), trainer=Solved, refresh_steps=2, max_steps=4)
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.estimated_at == [0, 2]
    values = [value for value in logged(trainer, "astar/value")]
    assert max(values) < 1.0
    assert logged(trainer, "astar/log_ratio")[2] == 0.0


def test_a_solved_run_resumes_as_an_unbroken_one(tmp_path: Path) -> None:
    """Regression: V* was estimated again for the moved reference, which had nothing to learn, and the run ended."""
    options = {**SAVED, "refresh_steps": 2, "max_steps": 4}
    assert_resumes(tmp_path, 3, lambda run: astar(run, lottery(), trainer=Solved, **options))


@pytest.mark.parametrize("solved", [0, 1])
def test_a_solved_environment_keeps_its_values_and_the_other_gets_new_ones(tmp_path: Path, solved: int) -> None:
    """Regression: the first environment without anything to learn left all of them with their old V*."""
    envs = [lottery(win=10.0), lottery(win=10.0)]
    envs[solved] = lottery(win=1.0)
    options = {**SAVED, "refresh_steps": 2, "per_device_train_batch_size": 16, "num_train_seeds": 16}
    trainer = astar(tmp_path, envs, trainer=Solved, max_steps=3, **options)
    trainer.train()
    assert trainer.estimated_at == [0, 2]
    first = json.loads((tmp_path / "checkpoint-2" / "astar_po.json").read_text())["values"]
    means = [{int(seed): start["mean"] for seed, start in first[str(task)]["starts"].items()} for task in (0, 1)]
    now = [{seed: start.mean for seed, start in trainer.values[task].starts.items()} for task in (0, 1)]
    assert now[solved] == means[solved]
    assert now[1 - solved] == {seed: mean / 2 for seed, mean in means[1 - solved].items()}
    assert max(now[1 - solved].values()) > 0


def test_a_refresh_keeps_the_unit_of_the_first_estimate(tmp_path: Path) -> None:
    """Regression: it was measured again, so that a reference with less spread blew advantages up."""
    trainer = astar(tmp_path, lottery(win=8.0), trainer=Solved, refresh_steps=2, max_steps=3)
    trainer.train()
    values = trainer.values[0]
    assert trainer.estimated_at == [0, 2]
    assert max(start.mean for start in values.starts.values()) <= 4.0
    assert (values.return_range, values.beta1) == (8.0, 4.0)
    advantages = trainer.batches[2]["advantages"].tolist()
    expected = [(t.episode_return / 2 - values.value(t.seed)) / 8 for t in trainer.played[-8:]]
    assert sorted(advantages) == pytest.approx(sorted(expected), abs=1e-6)
