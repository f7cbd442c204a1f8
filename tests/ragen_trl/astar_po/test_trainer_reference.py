"""The reference of AStarPOTrainer: what it is, that it does not change, when it is refreshed, and how a run resumes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from ragen_trl.errors import OptionError
from tests.support.ragen_trl.astar_runs import Spy, astar, draws, log_likelihood, stored
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.references import change, logits, reference_logits
from tests.support.ragen_trl.trainers import logged, parameters, small_model

LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
KINDS = ["full", "warm-started LoRA"]


def of_kind(kind: str, folder: Path) -> dict[str, Any]:
    """Options of a trainer whose policy is of a kind; each call makes the same policy again."""
    if kind == "full":
        return {}
    if not (folder / "adapter").exists():
        torch.manual_seed(0)
        warm = get_peft_model(small_model(), LORA)
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
    references = [json.loads((checkpoint / "astar_po.json").read_text())["reference"] for checkpoint in checkpoints]
    assert references[0] == references[1] != references[2]
    other = astar(folder / "other", **REFRESHED, **of_kind(kind, folder))
    for place in (2, 1):
        other.load_algorithm_state(checkpoints[place])
        assert other.reference.fingerprint() == references[place]


def test_a_resumed_run_ends_where_an_unbroken_one_does(refreshed: tuple[str, Path, Any], tmp_path: Path) -> None:
    """Resumed after the refresh in the third update, and once before it; starts without spread are replaced in both."""
    kind, folder, unbroken = refreshed
    for at in (1, 3) if kind == "full" else (3,):
        assert_resumes(unbroken, at, astar(tmp_path / str(at), **REFRESHED, **of_kind(kind, folder)))


def test_other_settings_of_v_are_refused_when_a_run_is_resumed(tmp_path: Path) -> None:
    """Regression: V* of the former beta1 and the former reward was kept, and compared with returns of the new one."""
    options = {**SAVED, "max_steps": 1}
    astar(tmp_path / "run", **options).train()
    for changed, words in (
        ({"beta1": 0.05}, "differ in beta1;"),
        ({"format_penalty": -0.5}, "differ in format_penalty of "),
    ):
        trainer = astar(tmp_path / "other", **{**options, **changed})
        with pytest.raises(OptionError, match=words):
            trainer.load_algorithm_state(tmp_path / "run" / "checkpoint-1")
