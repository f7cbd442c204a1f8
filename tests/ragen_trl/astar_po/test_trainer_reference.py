"""The reference of AStarPOTrainer: what it is, that it does not change, when it is refreshed, and how a run resumes."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from ragen_trl.astar_po.value_cache import ValueCache
from ragen_trl.errors import OptionError
from ragen_trl.trainers import reference
from tests.support.ragen_trl.astar_runs import Spy, astar, draws, log_likelihood, stored_keys
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.references import change, logits, reference_logits
from tests.support.ragen_trl.trainers import logged, lottery, parameters, small_model

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


class Checked(Spy):
    """Finds the log-ratio in another way: the log-likelihood of each trajectory under both policies, one at a time."""

    expected: list[float] = []

    def _learn_from(self, rollout: Any, kept: Any) -> Any:
        model = self.accelerator.unwrap_model(self.model)
        own = likelihoods(model, rollout.trajectories)
        with self.reference.model() as reference:
            other = likelihoods(reference, rollout.trajectories)
        self.expected = [*self.expected, (own - other).mean().item()]
        return super()._learn_from(rollout, kept)


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
    elif kind == "LoRA":
        torch.testing.assert_close(before, logits(small_model()))


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
    """A checkpoint holds the reference only once it was moved."""
    _, folder, trainer = refreshed
    assert trainer.estimated_at == [0, 2, 4]
    log_ratios = logged(trainer, "astar/log_ratio")
    assert [log_ratios[step] for step in (0, 2, 4)] == [0.0, 0.0, 0.0]
    assert min(abs(log_ratios[step]) for step in (1, 3)) > 1e-3
    assert logged(trainer, "astar/reference_episodes") == [32, 32, 64, 64, 96]
    with ValueCache(folder / "run" / "values.sqlite") as cache:
        references = [content["reference"] for content in stored_keys(cache).values()]
    assert len(set(references)) == 3
    assert references[2] == trainer.reference.fingerprint()
    checkpoints = [folder / "run" / f"checkpoint-{step}" for step in (1, 2, 3)]
    held = [(checkpoint / "reference" / "reference.safetensors").exists() for checkpoint in checkpoints]
    assert held == [False, False, True]
    state = json.loads((checkpoints[2] / "astar_po.json").read_text())
    assert (state["last_refresh"], state["reanchored"]) == (2, True)


def test_a_resumed_run_ends_where_an_unbroken_one_does(refreshed: tuple[str, Path, Any], tmp_path: Path) -> None:
    """Resumed after the refresh in the third update, and once before it; starts without spread are replaced in both."""
    kind, folder, unbroken = refreshed
    for at in (1, 3) if kind == "full" else (3,):
        assert_resumes(unbroken, at, astar(tmp_path / str(at), **REFRESHED, **of_kind(kind, folder)))


def test_a_resumed_run_accumulates_as_an_unbroken_one(tmp_path: Path) -> None:
    options = {**SAVED, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 4}
    for steps in ({}, {"steps_per_generation": 1}, {"num_generations": 2, "max_refills": 4, "num_train_seeds": 16}):
        folder = tmp_path / str(len(steps))
        unbroken = astar(folder / "unbroken", **{**options, **steps})
        unbroken.train()
        resumed = astar(folder / "resumed", **{**options, **steps})
        assert_resumes(unbroken, 2, resumed)
        assert resumed.reference_played == []  # V* is in the checkpoint


def test_a_run_made_longer_learns_v_star_of_its_further_start_states(tmp_path: Path) -> None:
    """What was played of the first ones is in the cache of the run's folder; their V* stays."""
    short = astar(tmp_path / "run", **SAVED, max_steps=2, num_train_seeds=None)
    short.train()
    longer = astar(tmp_path / "run", **SAVED, max_steps=3, num_train_seeds=None)
    longer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    first, values = short.values[0], longer.values[0]
    assert len(values.starts) > len(first.starts) > 0
    assert {seed: values.of(seed).value for seed in first.starts} == pytest.approx(
        {seed: start.value for seed, start in first.starts.items()}
    )
    assert values.played == values.episodes - first.episodes > 0
    assert logged(longer, "astar/reference_episodes") == [first.episodes] * 2 + [values.episodes]


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
    """Chance alone does not. The window of two rollouts is full of wins after the fifth, and then starts empty again.

    It is part of a checkpoint: a resumed run becomes stale when an unbroken one does.
    """
    options = {**SAVED, **STALE, "max_steps": 8}
    trainer = astar(tmp_path / "run", trainer=Lucky, **options)
    trainer.train()
    assert trainer.estimated_at == [0, 5, 7]
    assert logged(trainer, "reward")[3:] == [1.0] * 5
    assert_resumes(trainer, 4, astar(tmp_path / "resumed", trainer=Lucky, **options))


def test_a_trainer_that_trains_again_refreshes_again(tmp_path: Path) -> None:
    """Regression: the last refresh of the first training lay ahead of all steps of the second one."""
    trainer = astar(tmp_path, refresh_steps=2, max_steps=6)
    trainer.train()
    trainer.train()
    assert trainer.estimated_at == [0, 2, 4, 2, 4]


def test_a_trainer_that_resumes_has_the_returns_of_the_checkpoint_only(tmp_path: Path) -> None:
    """Regression: those of a checkpoint were added to those that the trainer had; a new process has four."""
    trainer = astar(tmp_path, max_steps=4, **{**SAVED, **STALE, "stale_window": 6})
    kept = []
    for resumed in (None, str(tmp_path / "checkpoint-1")):
        trainer.train(resume_from_checkpoint=resumed)
        kept.append(json.loads((tmp_path / "checkpoint-4" / "astar_po.json").read_text())["window"])
    assert len(kept[0]) == 4 and kept[1] == kept[0]


def test_a_policy_that_stays_as_it_is_never_calls_for_one(tmp_path: Path) -> None:
    trainer = astar(tmp_path, max_steps=8, **STALE)
    trainer.train()
    assert trainer.estimated_at == [0]


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
    """At a refresh the new reference always wins: no V* can be told from another, and the old one is kept.

    Regression: a resumed run estimated V* again for the moved reference, which had nothing to learn, and ended.
    """
    options = {**SAVED, "refresh_steps": 2, "max_steps": 4}
    trainer = astar(tmp_path / "run", lottery(), trainer=Solved, **options)
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.estimated_at == [0, 2]
    assert max(logged(trainer, "astar/value")) < 1.0
    assert logged(trainer, "astar/log_ratio")[2] == 0.0
    assert_resumes(trainer, 3, astar(tmp_path / "resumed", lottery(), trainer=Solved, **options))


class Lost(Spy):
    """From the third update on neither policy nor reference wins, though some lose less than others."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        if self.state.global_step < 2:
            return played
        without = [replace(t.turns[-1], info={**t.turns[-1].info, "success": False}) for t in played]
        return [replace(t, turns=(*t.turns[:-1], last)) for t, last in zip(played, without, strict=True)]


def test_a_policy_that_has_lost_the_task_is_told_of_and_trains_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a refresh then ended the run with the advice to warm-start the model."""
    options = {**SAVED, "refresh_steps": 2, "max_steps": 4}
    trainer = astar(tmp_path, lottery(), trainer=Lost, **options)
    trainer.train()
    assert trainer.state.global_step == 4 and trainer.estimated_at == [0, 2]
    first = json.loads((tmp_path / "checkpoint-2" / "astar_po.json").read_text())["values"]["0"]["starts"]
    assert {str(seed): start.mean for seed, start in trainer.values[0].starts.items()} == {
        seed: start["mean"] for seed, start in first.items()
    }
    assert "step 3" in caplog.text and "keeps its V*" in caplog.text and "earlier checkpoint" in caplog.text


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
    expected = [(t.episode_return / 2 - values.of(t.seed).value) / 8 for t in trainer.played[-8:]]
    assert sorted(advantages) == pytest.approx(sorted(expected), abs=1e-6)


def test_the_reference_is_hashed_once_and_again_after_a_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at every checkpoint, which reads all weights: five of them, and a refresh after the third update."""
    hashed: list[str] = []

    def counted(settings: bytes) -> Any:
        hashed.append("reference")
        return hashlib.sha256(settings)

    monkeypatch.setattr(reference, "sha256", counted)
    trainer = astar(tmp_path, max_steps=5, save_strategy="steps", save_steps=1, refresh_steps=3)
    trainer.train()
    states = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("checkpoint-*/astar_po.json"))]
    assert len(states) == 5 and len({state["reference"] for state in states}) == 2
    assert len(hashed) == 2


def test_other_settings_of_v_are_refused_when_a_run_is_resumed(tmp_path: Path) -> None:
    """Regression: V* of the former beta1 and the former reward was kept, and compared with returns of the new one."""
    options = {**SAVED, "max_steps": 1}
    astar(tmp_path / "run", **options).train()
    for changed, words in (
        ({"beta1": 0.05}, "beta1 was 0.5, now 0.05; resume"),
        ({"return_range": 2.0}, "return_range was None, now 2.0; resume"),
        ({"format_penalty": -0.5}, "settings: format_penalty of .* was -0.1, now -0.5; resume with those"),
    ):
        trainer = astar(tmp_path / "other", **{**options, **changed})
        with pytest.raises(OptionError, match=words):
            trainer.load_algorithm_state(tmp_path / "run" / "checkpoint-1")
    checkpoint = tmp_path / "run" / "checkpoint-1"
    again = astar(tmp_path / "again", **options)
    again.load_algorithm_state(checkpoint)
    assert again.values[0].starts
    state = json.loads((checkpoint / "astar_po.json").read_text())
    del state["settings"]
    (checkpoint / "astar_po.json").write_text(json.dumps(state))
    astar(tmp_path / "old", **{**options, "beta1": 0.05}).load_algorithm_state(checkpoint)  # it does not tell
