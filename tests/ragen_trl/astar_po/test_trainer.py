"""What an update of AStarPOTrainer is: REINFORCE with V* as baseline, whatever scales rewards or splits batches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import AStarPOTrainer
from ragen_trl.trainers.checks import HookError
from ragen_trl.trajectory import Turn
from tests.support.ragen_trl.astar_runs import STEP, Spy, astar, draws, gradient
from tests.support.ragen_trl.equivalence import assert_same_step, step
from tests.support.ragen_trl.trainers import logged, lottery, parameters


@pytest.mark.parametrize("scale", ["unit", "paper"])
def test_the_loss_is_never_negative(tmp_path: Path, scale: str) -> None:
    """Both of the runs that this project answers logged negative losses: they were no regression."""
    trainer = astar(tmp_path, draws(), loss_scale=scale, max_steps=6, learning_rate=1e-2)
    trainer.train()
    losses = logged(trainer, "loss")
    assert len(losses) == 6
    assert min(losses) >= 0 < max(losses)
    unit = 1.0 if scale == "paper" else 2 * 1e-3
    squares = logged(trainer, "astar/residual_squared")
    assert losses == pytest.approx([square / unit for square in squares], rel=1e-5)


def test_the_first_step_is_reinforce_with_the_optimal_value_as_baseline(tmp_path: Path) -> None:
    """Reference and policy are the same then: the gradient is −mean((R − V*) / range · Σ ∇ log π), whatever β₂."""
    trainer = astar(tmp_path, draws(win=3.0), beta2=0.1, **STEP)
    before = parameters(trainer)
    trainer.train()
    values = trainer.values[0]
    assert values.return_range in (6.0, 9.0)  # two or three draws won
    assert max(len(trajectory.turns) for trajectory in trainer.played) > 1
    weights = [(t.episode_return - values.of(t.seed).value) / values.return_range / 8 for t in trainer.played]
    assert len(weights) == 8
    expected = gradient(trainer.played, weights)
    moved = {name: value - before[name] for name, value in parameters(trainer).items()}
    assert_same_step(expected, moved)


def test_later_steps_are_pulled_towards_the_reference(tmp_path: Path) -> None:
    """With β₂ = 0.1 a log-ratio of Δ nats costs 0.1·Δ of what an episode earned: residual = β₂·Δ − A."""
    trainer = astar(tmp_path, beta2=0.1, max_steps=4, learning_rate=1e-2)
    trainer.train()
    columns = (logged(trainer, f"astar/{name}") for name in ("residual", "log_ratio", "advantage"))
    residuals, log_ratios, advantages = (torch.tensor(column) for column in columns)
    torch.testing.assert_close(residuals, 0.1 * log_ratios - advantages, atol=1e-5, rtol=0)
    assert log_ratios[1:].abs().min() > 1e-3


def test_what_the_model_thinks_of_environment_tokens_does_not_matter(tmp_path: Path) -> None:
    scored: list[str] = []

    class Disturbed(Spy):
        def score(self, model: Any, inputs: Any, *size: Any) -> Any:
            logprobs, entropies = super().score(model, inputs, *size)
            env = 1 - inputs["tool_mask"] * inputs["completion_mask"]
            assert env.sum() > 0
            by = 30.0 if logprobs.requires_grad else -50.0  # policy and reference
            scored.append("policy" if logprobs.requires_grad else "reference")
            return logprobs * (1 + 30 * env) + by * env, entropies

    options: dict[str, Any] = {**STEP, "kl_coef": 0.1, "beta2": 0.1}
    plain = step(astar(tmp_path / "plain", draws(), **options))
    disturbed = astar(tmp_path / "disturbed", draws(), trainer=Disturbed, **options)
    assert_same_step(plain, step(disturbed))
    assert scored == ["reference", "reference", "policy"]  # the first: what stage 1 played, against its sampler
    assert logged(disturbed, "astar/log_ratio") == [0.0]
    assert logged(disturbed, "kl") == [0.0]


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
    if not options:  # with equal micro-batches the mean of their means is the mean
        for name in ("log_ratio", "residual", "residual_squared"):
            expected = pytest.approx(logged(whole, f"astar/{name}"), rel=1e-3, abs=1e-6)
            assert logged(split, f"astar/{name}") == expected, name
    assert abs(logged(whole, "astar/log_ratio")[1]) > 0.01


def test_the_reference_is_told_by_the_order_of_its_starts(tmp_path: Path) -> None:
    """Regression: returns of a hook that turned them around were V* of other start states, also in the cache."""

    class Reversed(AStarPOTrainer):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            return super().rollout(starts, envs, policy)[::-1]

    with pytest.raises(HookError, match="return them in the order of the starts"):
        astar(tmp_path, draws(), trainer=Reversed).estimate_values()


def test_rewards_ten_times_as_large_make_the_same_run(tmp_path: Path) -> None:
    """One turn: in later ones the reward is part of what the model reads."""
    options: dict[str, Any] = {**STEP, "max_steps": 2, "beta2": 0.1}
    one, ten = (astar(tmp_path / str(win), lottery(win), **options) for win in (1.0, 10.0))
    assert_same_step(step(one), step(ten))
    assert logged(ten, "reward") == pytest.approx([10 * value for value in logged(one, "reward")])
    for name in ("astar/value", "astar/advantage", "astar/residual", "loss"):
        assert logged(ten, name) == pytest.approx(logged(one, name), rel=1e-4, abs=1e-6), name


def test_the_paper_scale_is_the_unit_scale_times_two_beta2(tmp_path: Path) -> None:
    """With β₂ = 0.1 five times the learning rate makes up for it, the KL term included, whose gradient begins at 0."""
    options: dict[str, Any] = {**STEP, "beta2": 0.1, "kl_coef": 0.5, "max_steps": 2, "learning_rate": 0.1}
    unit = astar(tmp_path / "unit", draws(), **options)
    paper = astar(tmp_path / "paper", draws(), loss_scale="paper", **{**options, "learning_rate": 0.5})
    assert_same_step(step(unit), step(paper))
    assert logged(paper, "loss") == pytest.approx([0.2 * loss for loss in logged(unit, "loss")], rel=1e-4)


def test_the_kl_term_does_not_look_at_what_the_environment_wrote(tmp_path: Path) -> None:
    """Regression: e^100 overflows, and times a mask of 0 it is NaN, in the loss and in every gradient."""

    class Far(Spy):
        def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            environment = (inputs["completion_mask"] * inputs["tool_mask"]) == 0
            assert environment.any()
            far = inputs["ref_per_token_logps"] + 100.0 * environment
            return super().policy_loss(model, {**inputs, "ref_per_token_logps": far})

    options: dict[str, Any] = {**STEP, "beta2": 0.1, "kl_coef": 0.5, "max_steps": 2, "learning_rate": 0.1}
    near, far = (astar(tmp_path / kind.__name__, draws(), trainer=kind, **options) for kind in (Spy, Far))
    assert_same_step(step(near), step(far))
    for name in ("loss", "kl", "grad_norm"):
        assert logged(far, name) == pytest.approx(logged(near, name), rel=1e-6), name
    assert logged(near, "kl")[1] > 0


def test_a_residual_cap_bounds_what_one_trajectory_can_do(tmp_path: Path) -> None:
    """Huber: an advantage of 0.3 or −0.7 beyond a cap of 0.1 pulls like one of ±0.1."""
    trainer = astar(tmp_path, residual_cap=0.1, **STEP)
    before = parameters(trainer)
    trainer.train()
    values = trainer.values[0]
    gaps = [trajectory.episode_return - values.of(trajectory.seed).value for trajectory in trainer.played]
    assert min(map(abs, gaps)) > 0.1
    expected = gradient(trainer.played, [(0.1 if gap > 0 else -0.1) / 8 for gap in gaps])
    assert_same_step(expected, {name: value - before[name] for name, value in parameters(trainer).items()})


def test_several_trajectories_a_start_train_the_most_uncertain_starts(tmp_path: Path) -> None:
    trainer = astar(
        tmp_path, num_generations=4, per_device_train_batch_size=32, filter_ratio=0.25, max_steps=1, num_train_seeds=8
    )
    trainer.train()
    groups = [trainer.played[i : i + 4] for i in range(0, 32, 4)]
    assert all(len({member.seed for member in group}) == 1 for group in groups)
    spreads = [torch.tensor([member.episode_return for member in group]).std().item() for group in groups]
    best = sorted(sorted(range(8), key=lambda group: -spreads[group])[:2])
    kept = [member for group in best for member in groups[group]]
    (batch,) = trainer.batches
    trained = [
        tuple(ids[mask.bool()].tolist())
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"] * batch["tool_mask"], strict=True)
    ]
    assert sorted(trained) == sorted(tuple(t for turn in member.turns for t in turn.reply_ids) for member in kept)
    values = trainer.values[0]
    expected = [member.episode_return - values.of(member.seed).value for member in kept]
    assert sorted(batch["advantages"].tolist()) == pytest.approx(sorted(expected), abs=1e-6)


def test_groups_without_spread_are_refilled(tmp_path: Path) -> None:
    """Groups of two: half of them have no spread. With refills even a filter that keeps everything drops these."""
    options: dict[str, Any] = {"num_generations": 2, "num_train_seeds": 32, "max_refills": 8, "max_steps": 4}
    trainer = astar(tmp_path, **options)
    trainer.train()
    assert len(trainer.values[0].trainable) < 32
    assert logged(trainer, "filter/kept_groups") == [4] * 4
    sampled = logged(trainer, "filter/trajectories_sampled")
    assert max(sampled) > 8
    assert len(trainer.played) == sum(sampled)
    assert {trajectory.seed for trajectory in trainer.played} <= set(trainer.values[0].trainable)


def test_an_update_without_anything_to_teach_is_left_out(tmp_path: Path) -> None:
    """All groups of this rollout win, though the reference does not always: filtered, nothing is left."""

    class Winning(Spy):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            if not self.accelerator.unwrap_model(self.model).training:
                return super().rollout(starts, envs, policy)
            played = super().rollout([*starts[:1]] * len(starts), envs, policy)
            pairs = zip(played, starts, strict=True)
            return [replace(each, seed=start.seed, outcome_seed=start.outcome_seed) for each, start in pairs]

    options: dict[str, Any] = {"num_generations": 4, "filter_ratio": 0.5, "weight_decay": 0.5, "max_steps": 1}
    trainer = astar(tmp_path, trainer=Winning, learning_rate=0.1, **options)
    before = parameters(trainer)
    trainer.train()
    assert logged(trainer, "filter/skipped") == [1.0]
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())


class Foreign(Spy):
    """Its sampler says other log-probabilities than the policy has."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        def shifted(turn: Turn) -> Turn:
            return replace(turn, logprobs=tuple(value - 1.0 for value in turn.logprobs))

        played = super().rollout(starts, envs, policy)
        return [replace(one, turns=tuple(map(shifted, one.turns))) for one in played]


def test_windows_are_scored_by_the_policy_whatever_sampled_them(tmp_path: Path) -> None:
    """Regression: what the other windows add was made of the sampler's log-probabilities, unless vLLM played."""
    trainer = astar(tmp_path, draws(), Foreign, **{**STEP, "window_turns": 1, "sampler_check": "warn"})
    trainer.train()
    others = torch.cat([batch["others_log_ratio"] for batch in trainer.batches])
    assert len(others) > len(trainer.played)  # trajectories of several windows
    assert others.abs().max() < 1e-5  # before the first update the policy is the reference
