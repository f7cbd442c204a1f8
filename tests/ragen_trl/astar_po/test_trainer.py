"""What an update of AStarPOTrainer is: REINFORCE with V* as baseline, whatever scales rewards; and its reference."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from ragen_trl import StarPOTrainer
from ragen_trl.errors import NotFiniteError, OptionError
from tests.support.ragen_trl.astar_runs import Spy, astar, draws, gradient, log_likelihood, stored
from tests.support.ragen_trl.equivalence import STEP, assert_same_step, step, timeless
from tests.support.ragen_trl.fake_vllm import LORA, fake_of, vllm_trainer
from tests.support.ragen_trl.references import change, logits, reference_logits
from tests.support.ragen_trl.trainers import (
    AnyReply,
    Lottery,
    as_with_deepspeed,
    logged,
    lottery,
    parameters,
    small_model,
)


def test_the_first_step_is_reinforce_with_the_optimal_value_as_baseline(tmp_path: Path) -> None:
    """Reference and policy are the same then: the gradient is −mean((R − V*) / range · Σ ∇ log π), whatever β₂."""
    trainer = astar(tmp_path, draws(win=3.0), beta2=0.1, **STEP)
    before = parameters(trainer)
    trainer.train()
    values = trainer.values[0]
    assert values.return_range in (6.0, 9.0)  # two or three draws won
    assert max(len(trajectory.turns) for trajectory in trainer.played) > 1
    weights = [(t.episode_return - values.starts[t.seed]) / values.return_range / 8 for t in trainer.played]
    assert len(weights) == 8
    expected = gradient(trainer.played, weights)
    moved = {name: value - before[name] for name, value in parameters(trainer).items()}
    assert_same_step(expected, moved)


def test_a_rollout_of_which_nothing_is_kept_moves_nothing_where_every_step_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: under DeepSpeed the filler went to the regression, which missed the reference's log-probabilities."""
    monkeypatch.setattr(StarPOTrainer, "compute_loss", as_with_deepspeed(StarPOTrainer.compute_loss))
    trainer = astar(tmp_path, draws(), num_generations=4, max_steps=2)
    monkeypatch.setattr(trainer, "select_groups", lambda rollout: [])
    before = parameters(trainer)
    trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())


@pytest.mark.parametrize("options", [{}, {"num_generations": 4, "filter_ratio": 0.5, "num_train_seeds": 6}])
def test_one_batch_equals_accumulated_micro_batches(tmp_path: Path, options: dict[str, Any]) -> None:
    """1 × 24 against 12 × 2, in the second of two updates, where reference and policy differ.

    With a filter 3 of 6 groups are kept, whose 12 rows fill some micro-batches and leave others to filler.
    """
    common = {"num_train_seeds": 24, **STEP, **options, "max_steps": 2, "beta2": 0.1, "kl_coef": 0.05}
    common |= {"entropy_coef": 0.01}
    whole = astar(tmp_path / "whole", draws(), per_device_train_batch_size=24, **common)
    split = astar(tmp_path / "split", draws(), per_device_train_batch_size=2, gradient_accumulation_steps=12, **common)
    assert_same_step(step(whole), step(split))
    assert logged(split, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)
    assert min(logged(split, "loss")) >= 0  # both of the runs that this project answers logged negative ones
    if not options:  # with equal micro-batches the mean of their means is the mean
        for name in ("log_ratio", "residual", "residual_squared"):
            expected = pytest.approx(logged(whole, f"astar/{name}"), rel=1e-3, abs=1e-6)
            assert logged(split, f"astar/{name}") == expected, name
    assert abs(logged(whole, "astar/log_ratio")[1]) > 0.01


# Stage 1 among environments that fail, and with vLLM


class FallsOver(AnyReply):
    """Crashes in its first steps, of all copies together, as a server that is down for a while."""

    crashes = 0

    def step(self, action: str) -> Any:
        if FallsOver.crashes:
            FallsOver.crashes -= 1
            raise ConnectionError("the store is down")
        return super().step(action)


def falling_over() -> AnyReply:
    return FallsOver(Lottery(), think=False, max_turns=1, max_actions=9, max_actions_per_turn=1)


def test_a_failed_episode_is_played_again_and_never_taken_for_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash was stored as a return of -1 once, and stayed in the cache when the environment was repaired."""
    options = {"env_workers": 0, "max_steps": 1}
    healthy = astar(tmp_path / "healthy", falling_over, **options).estimate_values()[0]
    monkeypatch.setattr(FallsOver, "crashes", 3)
    again = astar(tmp_path / "again", falling_over, **options).estimate_values()[0]
    assert again.starts == healthy.starts
    monkeypatch.setattr(FallsOver, "crashes", 1000)
    broken = astar(tmp_path / "broken", falling_over, **options)
    with pytest.raises(NotFiniteError, match="every episode failed in its environment, twice"):
        broken.estimate_values()
    monkeypatch.setattr(FallsOver, "crashes", 0)
    assert astar(tmp_path / "broken", falling_over, **options).estimate_values()[0].starts == healthy.starts


def test_a_regression_takes_no_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for offset in (0.0, math.log(0.5)):
        options = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1}
        options |= {"sampler_check": "warn"}  # an engine that is so far off stops the run
        folder = tmp_path / str(offset)
        trainer = vllm_trainer(folder, monkeypatch, lottery(draws=3), make=astar, **options)
        fake_of(trainer).offset = offset
        steps.append(step(trainer))
        assert all("importance_sampling_ratio" not in batch for batch in trainer.batches)
    assert max(float(value.abs().max()) for value in steps[0].values()) > 1e-3
    for name, value in steps[0].items():
        torch.testing.assert_close(steps[1][name], value, rtol=0.0, atol=0.0)


def test_stage_1_samples_from_the_reference_and_stage_2_from_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max_steps": 3, "refresh_steps": 2, "learning_rate": 1e-2}
    options["peft_config"] = LoraConfig(**LORA, init_lora_weights=False)
    trainer = vllm_trainer(tmp_path, monkeypatch, draws(), make=astar, **options)
    trainer.train()
    assert trainer.estimated_at == [0, 2]
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-4
    assert fake_of(trainer).loads == 5  # reference, policy, policy, the new reference, policy
    assert max(float(t.turns[0].logprobs[0]) for t in trainer.reference_played) < 0.0


# The reference: what it is, that it does not change, when it is refreshed, and how a run resumes


ADAPTER = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
KINDS = ["full", "warm-started LoRA"]


def of_kind(kind: str, folder: Path) -> dict[str, Any]:
    """Options of a trainer whose policy is of a kind; each call makes the same policy again."""
    if kind == "full":
        return {}
    if not (folder / "adapter").exists():
        torch.manual_seed(0)
        warm = get_peft_model(small_model(), ADAPTER)
        change(warm, by=0.1)
        warm.save_pretrained(folder / "adapter")
    return {"model": PeftModel.from_pretrained(small_model(), str(folder / "adapter"), is_trainable=True)}


class Checked(Spy):
    """Finds the log-ratio in another way: the log-likelihood of each trajectory under both policies, one at a time."""

    expected: list[float] = []

    def advantages(self, rollout: Any) -> Any:
        model = self.accelerator.unwrap_model(self.model)
        own = likelihoods(model, rollout.trajectories)
        with self.reference.model() as reference:
            other = likelihoods(reference, rollout.trajectories)
        self.expected = [*self.expected, (own - other).mean().item()]
        return super().advantages(rollout)


def likelihoods(model: Any, trajectories: Any) -> torch.Tensor:
    """(L,) sums of log-probabilities of the sampled tokens."""
    with torch.no_grad():
        return torch.stack([log_likelihood(model, trajectory) for trajectory in trajectories])


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_policy_at_the_start_and_stays_there(tmp_path: Path, kind: str) -> None:
    options = {"learning_rate": 1e-2, "max_steps": 3, **of_kind(kind, tmp_path)}
    trainer = astar(tmp_path / "run", draws(), trainer=Checked, **options)
    assert torch.equal(reference_logits(trainer.reference), policy_logits(trainer))
    before = reference_logits(trainer.reference)
    fingerprint = trainer.reference.fingerprint()
    trainer.train()
    log_ratios = logged(trainer, "astar/log_ratio")
    assert log_ratios[0] == 0.0 and logged(trainer, "kl")[0] == 0.0
    assert min(map(abs, log_ratios[1:])) > 1e-3
    assert log_ratios == pytest.approx(trainer.expected, abs=1e-4)
    assert torch.equal(reference_logits(trainer.reference), before)
    assert trainer.reference.fingerprint() == fingerprint
    assert not torch.allclose(policy_logits(trainer), before, atol=1e-3)
    if kind == "warm-started LoRA":  # its reference is not the base model
        assert not torch.allclose(before, logits(small_model()), atol=1e-3)


def policy_logits(trainer: Any) -> torch.Tensor:
    """Those of the policy as it is now."""
    return logits(trainer.accelerator.unwrap_model(trainer.model))


# Runs that are refreshed, and resumed from their checkpoints

SAVED: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2}
REFRESHED: dict[str, Any] = {**SAVED, "refresh_steps": 2, "max_steps": 5}


def assert_resumes(unbroken: Any, at: int, resumed: Any) -> None:
    """A run resumed from a checkpoint, without the cache of the run that wrote it, plays, logs and ends like that."""
    resumed.train(resume_from_checkpoint=str(Path(unbroken.args.output_dir) / f"checkpoint-{at}"))
    assert updates(resumed) == updates(unbroken)
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert resumed.values[0].starts == unbroken.values[0].starts
    assert resumed.reference.fingerprint() == unbroken.reference.fingerprint()
    played, reference_played, estimates = unbroken.at_checkpoint[at]
    assert 0 < played < len(unbroken.played)
    assert resumed.played == unbroken.played[played:]
    assert resumed.reference_played == unbroken.reference_played[reference_played:]
    assert resumed.estimated_at == unbroken.estimated_at[estimates:]


def updates(trainer: Any) -> list[dict[str, Any]]:
    """What was logged of each update, without the clock."""
    return [row for row in timeless(trainer) if "loss" in row]


@pytest.fixture(scope="module", params=KINDS)
def refreshed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any]:
    """A kind of policy, a folder, and a run of that kind with a checkpoint of each step; two tests read it."""
    folder = tmp_path_factory.mktemp("refreshed")
    trainer = astar(folder / "run", **REFRESHED, **of_kind(request.param, folder))
    trainer.train()
    return request.param, folder, trainer


def test_a_refresh_moves_the_reference_to_the_policy(refreshed: tuple[str, Path, Any]) -> None:
    """Regression: a rollback to a checkpoint from before the refresh ended in an error, its reference being gone."""
    kind, folder, trainer = refreshed
    assert trainer.estimated_at == [0, 2, 4]
    log_ratios = logged(trainer, "astar/log_ratio")
    assert [log_ratios[step] for step in (0, 2, 4)] == [0.0, 0.0, 0.0]
    assert min(abs(log_ratios[step]) for step in (1, 3)) > 1e-3
    assert logged(trainer, "astar/reference_episodes") == [32, 32, 64, 64, 96]
    assert len(stored(folder / "run")) == 3  # a key for each reference
    checkpoints = [folder / "run" / f"checkpoint-{step}" for step in (1, 2, 3)]
    keys = [json.loads((checkpoint / "astar_po.json").read_text())["key"] for checkpoint in checkpoints]
    assert keys[0] == keys[1] != keys[2]
    other = astar(folder / "other", **REFRESHED, **of_kind(kind, folder))
    for place in (2, 1):
        other.load_algorithm_state(checkpoints[place])
        other.save_algorithm_state(folder / "again")
        assert json.loads((folder / "again" / "astar_po.json").read_text())["key"] == keys[place]


def test_a_resumed_run_ends_where_an_unbroken_one_does(refreshed: tuple[str, Path, Any], tmp_path: Path) -> None:
    """Resumed after the refresh in the third update, and once before it; starts without spread are replaced in both."""
    kind, folder, unbroken = refreshed
    for at in (1, 3) if kind == "full" else (3,):
        assert_resumes(unbroken, at, astar(tmp_path / str(at), **REFRESHED, **of_kind(kind, folder)))


def test_other_settings_of_v_are_refused_when_a_run_is_resumed(tmp_path: Path) -> None:
    """Regression: V* of the former beta1 and the former reward was kept, and compared with returns of the new one."""
    options = {**SAVED, "max_steps": 1}
    astar(tmp_path / "run", **options).train()
    for changed in ({"beta1": 0.05}, {"max_reply_length": 3}, {"model": small_model(7)}):
        trainer = astar(tmp_path / "other", **{**options, **changed})
        with pytest.raises(OptionError, match="checkpoint-1 has V\\* of another reference or other settings"):
            trainer.load_algorithm_state(tmp_path / "run" / "checkpoint-1")
