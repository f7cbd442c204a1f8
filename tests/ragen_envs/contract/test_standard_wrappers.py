"""Gymnasium's own wrappers on every registered environment: each does here what it does elsewhere.

Left out: `RecordVideo`, whose constructor needs MoviePy. It needs frames of one size, which is tested.
"""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import (
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RenderCollection,
    TimeLimit,
    TransformReward,
)

from ragen_envs import AgentTurns
from ragen_envs.oracles import best_action, random_action
from tests.support.ragen_envs.registered import every_id, every_turns, make


@every_id
def test_passive_checker_checks_and_finds_nothing(env_id: str) -> None:
    env = PassiveEnvChecker(make(env_id, render_mode="rgb_array"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observation, info = env.reset(seed=0)
        results = [env.step("no such action"), env.step(random_action(env, np.random.default_rng(0)))]
        picture = env.render()
        env.close()
    assert env.checked_reset and env.checked_step and env.checked_render and env.checked_data_reuse
    twin = make(env_id, render_mode="rgb_array")
    assert (observation, info) == twin.reset(seed=0)
    assert results == [twin.step("no such action"), twin.step(random_action(twin, np.random.default_rng(0)))]
    assert np.array_equal(picture, twin.render())


@every_id
def test_passive_checker_would_find_something(env_id: str) -> None:
    """The check above can fail: an observation outside the space is reported."""
    env = make(env_id)
    env.observation_space = gymnasium.spaces.Text(1, min_length=0, charset="~")
    with pytest.warns(UserWarning, match="not within the observation space"):
        PassiveEnvChecker(env).reset(seed=0)


@every_turns
def test_order_enforcing_and_our_environments_ask_for_a_reset(env_id: str, wrapper: type[AgentTurns]) -> None:
    for env in (OrderEnforcing(make(env_id)), make(env_id), wrapper(make(env_id))):
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step("Left")


@every_id
def test_time_limit_counts_invalid_actions_and_starts_again(env_id: str) -> None:
    env = TimeLimit(make(env_id), max_episode_steps=4)
    for seed in (0, 1):
        env.reset(seed=seed)
        results = [env.step("no such action") for _ in range(4)]
        assert [result[2] for result in results] == [False] * 4
        assert [result[3] for result in results] == [False] * 3 + [True]


@every_turns
def test_time_limit_ends_turns_too(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = wrapper(gymnasium.make(env_id, max_episode_steps=1))
    env.reset(seed=0)
    action = random_action(env, np.random.default_rng(0))
    terminated, truncated, info = env.step(env.format_reply([action, action]))[2:]
    assert truncated and info["num_actions"] == 1
    assert (info["limit"], len(info["surplus_actions"])) == (("" if terminated else "env"), 1)


@every_id
def test_episode_statistics_are_the_sum_and_the_length(env_id: str) -> None:
    env = RecordEpisodeStatistics(TimeLimit(make(env_id), max_episode_steps=6))
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for episode in range(1, 6):
        rewards = []
        for _ in range(6):
            _, reward, terminated, truncated, info = env.step(random_action(env, rng))
            rewards.append(reward)
            if terminated or truncated:
                break
            assert "episode" not in info
        assert info["episode"]["r"] == pytest.approx(sum(rewards))
        assert info["episode"]["l"] == len(rewards) == env.length_queue[-1]
        assert env.episode_count == episode
        env.reset()


@every_id
def test_transform_reward_changes_the_reward_and_nothing_else(env_id: str) -> None:
    env, twin = TransformReward(make(env_id), lambda reward: 10 * reward + 1), make(env_id)
    rng = np.random.default_rng(0)
    assert env.reset(seed=5) == twin.reset(seed=5)
    for _ in range(5):
        action = random_action(twin, rng)
        ours, plain = env.step(action), twin.step(action)
        assert ours[1] == pytest.approx(10 * plain[1] + 1)
        assert (ours[0], *ours[2:]) == (plain[0], *plain[2:])


@every_id
def test_transform_reward_reaches_the_turn(env_id: str) -> None:
    """Around `AgentTurns` it also scales the penalty; inside, only the environment's reward."""
    outside = TransformReward(AgentTurns(make(env_id)), lambda reward: 2 * reward)
    inside = AgentTurns(TransformReward(make(env_id), lambda reward: 2 * reward))
    for env, expected in ((outside, -0.2), (inside, -0.1)):
        env.reset(seed=0)
        assert env.step("junk")[1] == pytest.approx(expected)


@every_id
def test_frames_of_an_episode_have_one_size(env_id: str) -> None:
    env = RenderCollection(make(env_id, render_mode="rgb_array"))
    for seed in range(5):
        env.reset(seed=seed)
        for actions_left in range(12, 0, -1):
            _, _, terminated, truncated, _ = env.step(best_action(env, actions_left))
            if terminated or truncated:
                break
        frames = env.render()
        assert len(frames) == 13 - actions_left + 1  # one of the reset
        assert {(frame.dtype, frame.ndim, frame.shape[2]) for frame in frames} == {(np.dtype(np.uint8), 3, 3)}
        assert len({frame.shape for frame in frames}) == 1
        assert not np.array_equal(frames[0], frames[-1])


@every_id
def test_pictures_show_the_state_and_do_not_touch_it(env_id: str) -> None:
    seen, unseen = make(env_id, render_mode="rgb_array"), make(env_id)
    assert seen.reset(seed=1) == unseen.reset(seed=1)
    for _ in range(2):
        action = random_action(unseen, np.random.default_rng(0))
        before = seen.render()
        assert np.array_equal(before, seen.render())
        before[:] = 0  # a frame is the caller's own
        assert seen.render().any()
        assert seen.step(action) == unseen.step(action)
