"""The two student reports' "A*-PO": losses by hand, why each fails, and that both train through the public hooks."""

import doctest
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import student_losses
from learning.student_losses import imitation_loss, imitation_weights, scaled_likelihood_loss, sum_of_scores
from learning.student_reports import (
    FirstReportConfig,
    FirstReportTrainer,
    MissingReasoningRewardError,
    SecondReportConfig,
    SecondReportTrainer,
)

from ragen_trl.trainers.reference import Reference
from ragen_trl.trainers.starpo import StarPOTrainer
from tests.support.ragen_trl.tabular import double
from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "algorithms.json").read_text(encoding="utf-8"))
TINY_GAPS = next(entry for entry in VECTORS["group_advantages"] if entry["id"].startswith("ga5"))

LOGPROBS = double([[-1.0, -2.0, -99.0], [-0.5, -99.0, -99.0]])
REFERENCE = double([[-1.5, -1.0, -7.0], [-1.0, 5.0, 5.0]])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


def reply_length(trajectory: Any, **_: Any) -> list[float]:
    """Stands in for the reward of reasoning: a hundredth for each sampled token."""
    return [episode.num_reply_tokens / 100 for episode in trajectory]


class _Spy:
    """Keeps what was played and what was trained on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[list[Any]] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        self.rollouts.append(super().rollout(starts, envs, policy))  # type: ignore[misc]
        return self.rollouts[-1]

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.batches.append(inputs)
        loss: torch.Tensor = super().policy_loss(model, inputs)  # type: ignore[misc]
        return loss


class FirstSpy(_Spy, FirstReportTrainer):
    """The first report's trainer, watched."""


class SecondSpy(_Spy, SecondReportTrainer):
    """The second report's trainer, watched."""


def first(folder: Path, win: float = 1.0, **changes: Any) -> Any:
    options = {"num_generations": 1, "per_device_train_batch_size": 1, "learning_rate": 1e-2, **changes}
    return small_trainer(folder, lottery(win), FirstReportConfig, FirstSpy, **options)


def second(folder: Path, **changes: Any) -> Any:
    options = {"reward_funcs": [reply_length], "learning_rate": 1e-2, **changes}
    return small_trainer(folder, lottery(), SecondReportConfig, SecondSpy, **options)


def logged(trainer: Any, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


# The losses


def test_the_examples_in_the_docstrings_are_right() -> None:
    assert doctest.testmod(student_losses) == (0, 3)


@pytest.mark.parametrize("advantage", [-7.5, -0.3, 0.0, 1.0, 1000.0])
def test_the_weight_of_a_batch_of_one_is_one_whatever_the_reward(advantage: float) -> None:
    assert imitation_weights(double([advantage]), 0.3).tolist() == [1.0]


def test_weights_of_a_batch_are_exponentials_over_their_mean() -> None:
    weights = imitation_weights(double([0.3, 0.0, 0.3 * math.log(3.0)]), 0.3)
    mean = (math.e + 1 + 3) / 3
    assert weights.tolist() == pytest.approx([math.e / mean, 1 / mean, 3 / mean], abs=1e-12)
    huge = imitation_weights(double([1000.0, 999.7]), 0.3)  # exp(3333) would overflow
    assert huge.tolist() == pytest.approx([2 * math.e / (1 + math.e), 2 / (1 + math.e)], abs=1e-9)


def test_the_first_loss_by_hand() -> None:
    """Rows: CE (1 + 2) / 2 with k1 (0.5 - 1) / 2, and CE 0.5 with k1 0.5; weights 1.5 and 0.5."""
    loss = imitation_loss(LOGPROBS, REFERENCE, MASK, double([1.5, 0.5]), kl_coef=0.03)
    expected = (1.5 * (1.5 + 0.03 * -0.25) + 0.5 * (0.5 + 0.03 * 0.5)) / 2
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    twice = imitation_loss(LOGPROBS, REFERENCE, MASK, double([1.5, 0.5]), kl_coef=0.03, normaliser=4.0)
    assert twice.item() == pytest.approx(expected / 2, abs=1e-12)


def test_the_second_loss_by_hand() -> None:
    """Tokens: A log π is -1 and -2 for A = 1, 0.5 for A = -1; k1 is 0.5, -1 and 0.5, hence 0 in the sum."""
    loss = scaled_likelihood_loss(LOGPROBS, REFERENCE, MASK, double([1.0, -1.0]), 6.0, 0.05)
    assert loss.item() == pytest.approx((6 * (1 + 2 - 0.5) + 0.05 * 0.0) / 3, abs=1e-12)
    only_kl = scaled_likelihood_loss(LOGPROBS, REFERENCE, MASK, double([0.0, 0.0]), 6.0, 0.05, normaliser=1.0)
    assert only_kl.item() == pytest.approx(0.05 * (0.5 - 1.0 + 0.5), abs=1e-12)


def test_the_second_loss_falls_without_bound_as_a_negative_sample_becomes_unlikely() -> None:
    """Of two tokens one has A = 1 and is certain, the other A = -1 and log-probability -x: 6 (0 - x) / 2 and k1."""
    losses = []
    for unlikely in (1.0, 10.0, 100.0, 1000.0):
        logprobs, reference = double([[0.0], [-unlikely]]), double([[0.0], [-1.0]])
        loss = scaled_likelihood_loss(logprobs, reference, torch.ones(2, 1), double([1.0, -1.0]), 6.0, 0.05)
        assert loss.item() == pytest.approx((-6 * unlikely + 0.05 * (1 - unlikely)) / 2, abs=1e-9)
        losses.append(loss.item())
    assert losses[0] < 0
    assert losses[-1] < -3000


def test_k1_pushes_a_negative_sample_the_same_way() -> None:
    logprobs = double([[-3.0]]).requires_grad_()
    loss = scaled_likelihood_loss(logprobs, double([[-1.0]]), torch.ones(1, 1), double([-1.0]), 6.0, 0.05)
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(6.05)  # a step down the gradient lowers log π further


def test_a_hundredth_of_the_bonus_is_a_unit_advantage_where_all_episodes_fail() -> None:
    bonus = double(TINY_GAPS["inputs"]["rewards"])
    expected = double(TINY_GAPS["expected"]["verl_ddof1_eps1e6"])
    scores = sum_of_scores(torch.stack([torch.zeros(4), bonus], dim=1), double([1.0, 0.4]), 4)
    assert scores.tolist() == pytest.approx((0.4 * expected).tolist(), abs=1e-9)
    assert expected.abs().max().item() == pytest.approx(1.22, abs=0.005)
    assert (6 * scores).abs().max().item() == pytest.approx(2.94, abs=0.005)


def test_scores_are_normalised_within_their_group_and_then_summed() -> None:
    rewards = double([[1.0, 0.2], [0.0, 0.2], [3.0, 0.0], [3.0, math.nan], [0.0, 0.1], [10.0, 0.0]])
    scores = sum_of_scores(rewards, double([1.0, 0.5]), 2)
    half = math.sqrt(0.5)  # z of two different numbers, up to eps
    assert scores.tolist() == pytest.approx([half, -half, 0.0, 0.0, -half / 2, half / 2], abs=1e-5)


# The trainers


def test_defaults_are_those_of_the_reports(tmp_path: Path) -> None:
    one = FirstReportConfig(output_dir=str(tmp_path), bf16=False)
    assert (one.generation_batch_size, one.per_device_train_batch_size, one.steps_per_generation) == (1, 1, 1)
    assert (one.learning_rate, one.max_steps, one.kl_coef, one.weight_temperature) == (3e-7, 100, 0.03, 0.3)
    assert (one.value_samples, one.initial_value, one.initial_value_steps) == (1, 0.3, 20)
    two = SecondReportConfig(output_dir=str(tmp_path), bf16=False)
    assert (two.groups_per_generation, two.num_generations, two.steps_per_rollout) == (2, 4, 1)
    assert (two.learning_rate, two.max_steps, two.kl_coef, two.advantage_scale) == (3e-5, 300, 0.05, 6.0)
    assert two.reward_weights == [1.0, 0.4]


@pytest.mark.parametrize("initial_value_steps", [0, 20])
def test_the_reward_has_no_effect_on_the_first_report(tmp_path: Path, initial_value_steps: int) -> None:
    """Two runs with the same seeds, where a win pays 1 or 1000, end with the same weights, bit for bit."""
    runs = [
        first(tmp_path / str(win), win, initial_value_steps=initial_value_steps, max_steps=3) for win in (1.0, 1000.0)
    ]
    before = parameters(runs[0])
    for run in runs:
        run.train()
    returns = [[episodes[0].episode_return for episodes in run.rollouts] for run in runs]
    assert returns[1] == [1000.0 * reward for reward in returns[0]]
    assert len(set(returns[0])) == 2
    after, other = (parameters(run) for run in runs)
    assert all(torch.equal(after[name], other[name]) for name in after)
    assert not any(torch.equal(after[name], before[name]) for name in after)
    assert [batch["advantages"].tolist() for batch in runs[0].batches] == [[1.0]] * 3


def test_the_first_logged_loss_is_the_cross_entropy_of_the_own_sample(tmp_path: Path) -> None:
    trainer = first(tmp_path, max_steps=2)
    trainer.train()
    for step, loss in enumerate(logged(trainer, "loss")):
        (episode,) = trainer.rollouts[step]
        logprobs = [value for turn in episode.turns for value in turn.logprobs]
        k1 = logged(trainer, "kl")[step]
        assert loss == pytest.approx(-sum(logprobs) / len(logprobs) + 0.03 * k1, abs=2e-4)  # logged to 4 digits
    kl = logged(trainer, "kl")
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert abs(kl[1]) > 1e-3


def test_in_a_batch_weights_follow_return_minus_v_star_of_the_present_policy(tmp_path: Path) -> None:
    trainer = first(tmp_path, per_device_train_batch_size=8, initial_value_steps=1, max_steps=2)
    trainer.train()
    constant, played, sampled = trainer.rollouts  # V* is 0.3 in the first update, one more episode each in the second
    assert [episode.seed for episode in sampled] == [episode.seed for episode in played]
    expected = [[math.exp((episode.episode_return - 0.3) / 0.3) for episode in constant]]
    gaps = [a.episode_return - b.episode_return for a, b in zip(played, sampled, strict=True)]
    expected.append([math.exp(gap / 0.3) for gap in gaps])
    assert set(gaps) == {-1.0, 0.0, 1.0}
    for batch, weights in zip(trainer.batches, expected, strict=True):
        wanted = sorted(weight / (sum(weights) / 8) for weight in weights)
        assert sorted(batch["advantages"].tolist()) == pytest.approx(wanted, rel=1e-4)


def test_the_second_report_s_first_loss_agrees_with_a_slow_loop(tmp_path: Path) -> None:
    trainer = second(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4)
    trainer.train()
    played = trainer.rollouts[0]
    total, tokens = 0.0, 0
    for group in (played[:4], played[4:]):
        scores = torch.zeros(4)
        for weight, values in ((1.0, [e.episode_return for e in group]), (0.4, reply_length(group))):
            rewards = torch.tensor(values)
            if rewards.std() > 0:
                scores += weight * (rewards - rewards.mean()) / rewards.std()
        for episode, score in zip(group, scores.tolist(), strict=True):
            for turn in episode.turns:
                total += sum(-6.0 * score * logprob for logprob in turn.logprobs)
                tokens += len(turn.logprobs)
    losses = logged(trainer, "loss")
    assert len(losses) == 2
    assert abs(losses[0]) > 0.01
    assert losses[0] == pytest.approx(total / tokens, abs=1e-2 * abs(total / tokens))


def test_on_old_samples_the_second_report_s_loss_keeps_falling_and_its_kl_becomes_negative(tmp_path: Path) -> None:
    """The lottery cannot be won by skill: there is nothing to learn, from one rollout or from twenty."""
    stale = second(tmp_path / "stale", num_iterations=20, max_steps=20)
    fresh = second(tmp_path / "fresh", max_steps=20)
    for trainer in (stale, fresh):
        trainer.train()
    assert (len(stale.rollouts), len(fresh.rollouts)) == (1, 20)
    losses = logged(stale, "loss")
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < -10
    assert logged(stale, "kl")[-1] < -1  # no divergence is negative
    assert max(map(abs, logged(fresh, "loss"))) < 5


def test_the_reference_stays_where_training_began(tmp_path: Path) -> None:
    trainer = second(tmp_path)
    before = Reference(trainer.model).fingerprint()
    trainer.train()
    assert trainer.reference.fingerprint() == before
    assert Reference(trainer.model).fingerprint() != before


def test_replies_without_thoughts_need_another_reward_of_reasoning(tmp_path: Path) -> None:
    with pytest.raises(MissingReasoningRewardError, match="think is False"):
        second(tmp_path, reward_funcs=None)
    trainer = second(tmp_path, reward_funcs=None, think=True)
    assert trainer.reward_func_names == ["environment_return", "consistency_reward"]


def test_starpo_refuses_the_options_of_a_report(tmp_path: Path) -> None:
    message = "FirstReportConfig, most of whose options StarPOTrainer .* make a FirstReportTrainer"
    with pytest.raises(ValueError, match=message):
        small_trainer(tmp_path, lottery(), FirstReportConfig, StarPOTrainer, num_generations=4)


@pytest.mark.parametrize("config", [FirstReportConfig, SecondReportConfig])
@pytest.mark.parametrize(("option", "value"), [("beta", 0.1), ("advantage", "gigpo"), ("epsilon", 0.1)])
def test_an_option_that_the_loss_does_not_have_is_refused(tmp_path: Path, config: Any, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} is {value!r}"):
        config(output_dir=str(tmp_path), bf16=False, **{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_samples": 0}, "value_samples is 0"),
        ({"weight_temperature": 0.0}, "weight_temperature 0.0"),
        ({"filter_ratio": 0.5}, "filter_ratio is 0.5"),
        ({"num_iterations": 2}, "serves 2 updates"),
    ],
)
def test_the_first_report_s_options_are_checked(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FirstReportConfig(output_dir=str(tmp_path), bf16=False, **options)
