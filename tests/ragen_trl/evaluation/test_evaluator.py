"""Evaluation: fixed seeds, and the random and oracle rows against values computed another way."""

import math
from dataclasses import replace
from typing import Any

import gymnasium
import pytest

from ragen_envs import baselines
from ragen_trl import StarPOConfig
from ragen_trl.algorithms.intervals import rate_interval
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.evaluator import episode_row, evaluate, summarise, with_differences
from ragen_trl.rollout.episode import measure
from ragen_trl.trajectory import Trajectory, Turn

LAKE = "ragen/FrozenLake-v0"


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none", "max_completion_length": 400}
    return StarPOConfig(output_dir="unused", think=False, **{**quiet, **values})


def episode(
    rewards: list[float], valid: list[bool], success: bool, truncated: bool = False, seed: int = 0
) -> Trajectory:
    infos = [{"format_is_valid": True, "action_is_valid": ok, "num_actions": 2, "success": success} for ok in valid]
    turns = [Turn((1,), (2, 3), (), "", "", r, info) for r, info in zip(rewards, infos, strict=True)]
    return Trajectory(tuple(turns), seed=seed, terminated=not truncated, truncated=truncated)


def test_a_summary_by_hand() -> None:
    one, two = episode([0.0, 1.0], [True, True], True), episode([-0.1], [False], False, truncated=True, seed=1)
    result = summarise([one, two])
    assert (result.n, result.success, result.truncated) == (2, 0.5, 0.5)
    assert result.mean_return == pytest.approx(0.45)
    assert result.return_stderr == pytest.approx(0.55)  # std of (1, −0.1) is 1.1 / √2
    assert result.action_valid == pytest.approx(2 / 3)  # of turns, not of episodes
    assert (result.format_valid, result.turns, result.actions, result.reply_tokens) == (1.0, 1.5, 3.0, 3.0)
    assert (result.success_low, result.success_high) == rate_interval([1, 0], [1, 1])
    unreadable = replace(two.turns[0], info={**two.turns[0].info, "format_is_valid": False})
    assert summarise([one, replace(two, turns=(unreadable,))]).format_valid == pytest.approx(2 / 3)  # of turns, too
    assert measure(one)["action_valid"] == 1.0
    assert measure(two) == {
        **{"success": 0.0, "return": -0.1, "format_valid": 1.0, "action_valid": 0.0},
        **{"turns": 1.0, "actions": 2.0, "reply_tokens": 2.0, "truncated": 1.0},
    }


def test_an_episode_in_which_the_environment_failed_says_nothing_about_the_policy() -> None:
    won, lost = episode([1.0], [True], True), episode([0.0], [True], False, truncated=True, seed=1)
    info = {**lost.turns[-1].info, "error": "the store is gone"}
    crashed = replace(lost, limit="crash", turns=(replace(lost.turns[0], info=info),))
    assert (summarise([won, lost]).success, summarise([won, lost]).left_out) == (0.5, 0)
    assert (summarise([won, crashed]).success, summarise([won, crashed]).left_out) == (1.0, 1)
    with pytest.raises(UserError, match="all of 1 episodes failed without the policy.*the store is gone"):
        summarise([crashed])
    other = episode([1.0], [True], True, seed=1)
    rows = {name: [episode_row(one) for one in each] for name, each in (("a", [won, crashed]), ("b", [won, other]))}
    results: dict[str, Any] = {"a": {}}
    with_differences(results, rows, "a", "b")
    pair = results["a"]["differences"]["b"]
    assert (pair["value"], pair["starts"]) == (0.0, 1)


def test_a_success_that_is_not_a_number_is_none() -> None:
    unknown = episode([1.0], [True], math.nan)  # type: ignore[arg-type]
    assert summarise([unknown, episode([1.0], [True], True, seed=1)]).success == 0.5


def test_samples_of_a_start_state_by_hand() -> None:
    """Start 0: two successes of two; start 1: one of two; start 2: only one episode, which failed, so no pass@2."""
    outcomes = [(0, True), (0, True), (1, True), (1, False), (2, False)]
    result = summarise([episode([float(won)], [True], won, seed=seed) for seed, won in outcomes])
    assert (result.n, result.samples, result.success) == (5, 2, 0.6)
    assert {k: (found["value"], found["starts"]) for k, found in result.pass_at_k.items()} == {
        "1": (0.75, 2),
        "2": (1.0, 2),
    }
    assert (result.success_low, result.success_high) == rate_interval([2, 1, 0], [2, 2, 1])
    # residuals t - 0.6 n: 0.8, -0.2, -0.6; 3/2 times their squares over 5²
    assert result.return_stderr == pytest.approx(math.sqrt(1.5 * 1.04 / 25))
    assert result.in_words().endswith("(n=5, 2 a start state), pass@2 1.000 [0.232, 1.000]")


@pytest.mark.parametrize("policy", ["random", "oracle"])
def test_the_same_call_twice_agrees_whatever_the_batches(policy: str) -> None:
    first = evaluate(policy, LAKE, config(), episodes=30)
    again = evaluate(policy, LAKE, config(rollout_batch_size=7), episodes=30)
    assert first == again


@pytest.mark.parametrize("policy", ["random", "oracle"])
@pytest.mark.parametrize("env", [LAKE, "ragen/Bandit-v0", "ragen/Sokoban-v0"])
def test_rows_are_those_of_the_baselines_command(env: str, policy: str) -> None:
    """The same episodes, seed for seed: start state, outcome seed and sampling seed."""
    horizon = baselines.default_horizon(gymnasium.make(env))
    found = evaluate(policy, env, config(max_turns=horizon, max_actions_per_turn=1, max_actions=horizon), episodes=128)
    row = baselines.measure(env, policy, episodes=128)
    assert (found.n, found.success, found.actions) == (row["n"], row["success"], row["mean_length"])
    assert (found.success_low, found.success_high) == pytest.approx((row["low"], row["high"]), abs=0.01)
    assert (found.mean_return, found.return_stderr) == pytest.approx((row["mean_return"], row["return_stderr"]))


@pytest.mark.parametrize("episodes", [0, 10_001])
def test_evaluation_never_leaves_its_seeds(episodes: int) -> None:
    with pytest.raises(OptionError, match=f"{episodes} evaluation episodes"):
        evaluate("random", LAKE, config(), episodes)
