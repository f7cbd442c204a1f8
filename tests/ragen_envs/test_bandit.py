"""Bandit: pay-outs, names and order."""

import gymnasium
import numpy as np
import pytest

from ragen_envs import Bandit


def pay(env: Bandit, arm: str, outcome_seed: int) -> float:
    """The reward of one pull, start state of seed 0."""
    env.reset(seed=0, options={"outcome_seed": outcome_seed})
    return float(env.step(arm)[1])


def test_low_arm_always_pays_a_tenth() -> None:
    env = Bandit()
    assert {pay(env, "Phoenix", seed) for seed in range(200)} == {0.1}


def test_high_arm_pays_one_a_quarter_of_the_time() -> None:
    env = Bandit()
    rewards = [pay(env, "Dragon", seed) for seed in range(4000)]
    assert set(rewards) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.25, abs=0.028)  # 4 standard errors


def test_expected_rewards() -> None:
    env = Bandit()
    assert (env.expected_reward("Phoenix"), env.expected_reward("Dragon")) == (0.1, 0.25)
    paper = Bandit(low_reward=0.15)
    assert paper.expected_reward("Phoenix") == 0.15
    assert pay(paper, "Phoenix", 0) == 0.15


def test_episode_is_one_choice_and_success_is_the_high_arm_whatever_it_paid() -> None:
    env = Bandit()
    for seed in range(8):
        env.reset(seed=seed)
        observation, reward, terminated, truncated, info = env.step("dragon")
        assert observation == f"Dragon: {reward:g} points"
        assert (terminated, truncated) == (True, False)
        assert info == {"success": True, "action_is_valid": True, "action_is_effective": True, "arm": "Dragon"}
        env.reset(seed=seed)
        observation, _, terminated, _, info = env.step("PHOENIX ")
        assert (observation, terminated, info["success"], info["arm"]) == (
            "Phoenix: 0.1 points",
            True,
            False,
            "Phoenix",
        )


def test_order_is_drawn_per_seed_and_tells_no_role() -> None:
    env = Bandit()
    firsts = []
    for seed in range(1000):
        observation, _ = env.reset(seed=seed)
        assert observation == "Machines: " + ", ".join(env.actions)
        firsts.append(env.actions[0])
    assert 437 < firsts.count("Dragon") < 563  # 4 standard errors
    assert Bandit().actions == Bandit(low_name="Dragon", high_name="Phoenix").actions


def test_rev_swaps_the_roles_of_the_same_names() -> None:
    env = gymnasium.make("ragen/BanditRev-v0").unwrapped
    assert isinstance(env, Bandit)
    assert (env.low_name, env.high_name) == ("Dragon", "Phoenix")
    assert pay(env, "Dragon", 0) == 0.1


def test_instruction_is_the_same_for_both_roles() -> None:
    assert Bandit().instruction == Bandit(low_name="Dragon", high_name="Phoenix").instruction
    assert "symbolises" in Bandit().instruction


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low_name": "dragon"}, "cannot be told apart"),
        ({"low_name": ""}, "arm name ''"),
        ({"high_name": " Dragon"}, "arm name ' Dragon'"),
        ({"high_name": "龍"}, "arm name '龍'"),
        ({"high_probability": 1.5}, "high_probability=1.5"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bandit(**arguments)  # type: ignore[arg-type]
