"""What every registered environment promises beyond `ragen_envs.check` (see `test_cli`), bare and in turns."""

import copy
import inspect
import pickle
import random
import re
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from ragen_envs import AgentTurns, TextEnv, ToolTurns, random_action
from tests.support.ragen_envs.registered import EVERY_INFO, around, every_id, every_turns, make, turn_info

every_copy = pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"]
)


@every_turns
@pytest.mark.parametrize("think", [True, False])
def test_gymnasium_checker_passes_for_turns(env_id: str, wrapper: type[AgentTurns], think: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")  # it is a wrapper
        check_env(wrapper(gymnasium.make(env_id), think=think))


@every_turns
@every_copy
def test_copies_go_on_alike_and_apart(env_id: str, wrapper: type[AgentTurns], duplicate: Any) -> None:
    for env in (gymnasium.make(env_id), wrapper(gymnasium.make(env_id))):
        env.reset(seed=8)
        for _ in range(2):  # the second time in the midst of an episode
            twin = duplicate(env)
            # First one and then the other: if they shared anything, the second would not find it as the first did.
            played = [several_steps(each) for each in (twin, env)]
            assert data_equivalence(played[0], played[1], exact=True)
        assert env.reset() == twin.reset()


def several_steps(env: gymnasium.Env[str, str]) -> list[Any]:
    """The results of three steps, with actions that are always the same."""
    rng = np.random.default_rng(0)
    results = []
    for _ in range(3):
        action = random_action(env, rng)
        results.append(env.step(env.format_reply([action]) if isinstance(env, AgentTurns) else action))
    return results


def random_garbage(rng: np.random.Generator) -> str:
    """A string that is not an action anywhere: it has a character that no environment knows, or is blank or huge."""
    length = int(rng.integers(1, 60))
    strange = "".join(map(chr, rng.integers(0x110000, size=length)))  # surrogates and unassigned ones among them
    ascii_text = "".join(map(chr, rng.integers(128, size=length)))
    return ("", " \t\n", "¿" * 100_000, f"¿{strange}", f"{ascii_text}¿", "日本語")[rng.integers(6)]


def assert_well_formed(env: gymnasium.Env[str, str], result: tuple[Any, ...], keys: set[str]) -> None:
    """What a step may return, whatever the action was."""
    observation, reward, terminated, truncated, info = result
    assert observation in env.observation_space
    assert type(reward) is float and np.isfinite(reward)
    assert type(terminated) is type(truncated) is bool
    assert info.keys() == keys
    assert all(type(info[key]) is bool for key in EVERY_INFO)


@every_id
def test_random_episodes_of_garbage_among_actions(env_id: str) -> None:
    env, untouched = make(env_id), make(env_id)
    rng = np.random.default_rng(0)
    keys = EVERY_INFO | set(env.idle_info)
    for episode in range(12):
        now = env.reset(seed=episode)[0]
        untouched.reset(seed=episode)
        ends = (False, False)
        for _ in range(10):
            result = env.step(random_garbage(rng))
            assert_well_formed(env, result, keys)
            assert (result[:4], result[-1]["action_is_valid"]) == ((now, 0.0, *ends), False)
            action = random_action(untouched, rng)
            result = env.step(action)
            assert_well_formed(env, result, keys)
            assert result == untouched.step(action)
            if any(ends):  # after the end nothing happens
                assert (result[:4], result[-1]["action_is_valid"]) == ((now, 0.0, *ends), False)
            else:
                assert result[-1]["action_is_valid"]
            now, ends = result[0], result[2:4]


@every_turns
def test_random_episodes_of_garbage_among_replies(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = wrapper(gymnasium.make(env_id), max_turns=5)
    rng = np.random.default_rng(0)
    keys = turn_info(env_id, wrapper)
    for episode in range(25):
        env.reset(seed=episode)
        for turn in range(1, 6):
            action = random_action(env, rng)
            garbage = random_garbage(rng)
            good, bad = env.format_reply([action]), f"<think>{garbage}</think><answer>{garbage} || {action}</answer>"
            if wrapper is ToolTurns:  # not only words, which end the episode
                bad = around(env, garbage) + good
            cut = around(env, garbage).rpartition("</")[0]
            reply = (good, garbage, bad, cut, garbage + good)[rng.integers(5)]
            result = env.step(reply)
            assert_well_formed(env, result, keys)
            info = result[-1]
            assert result[1] == info["env_reward"] + info["format_penalty"]
            assert info["format_penalty"] == (0.0 if info["action_is_valid"] else -0.1)
            assert info["action_is_valid"] or reply != good
            assert info["turn"] == turn
            if result[2] or result[3]:
                break
        else:
            pytest.fail("five turns did not end the episode")


def trace(env: TextEnv, seed: int, steps: int = 12, options: dict[str, Any] | None = None) -> list[Any]:
    """All results of an episode of random actions; they depend only on `seed`."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = [env.reset(seed=seed, options=options)]
    for _ in range(steps):
        seen.append(env.step(random_action(env, rng)))
        if seen[-1][2] or seen[-1][3]:
            break
    return seen


@every_id
def test_global_randomness_is_neither_read_nor_moved(env_id: str) -> None:
    expected = trace(make(env_id), 3)
    np.random.seed(99)
    random.seed(99)
    before = random.getstate(), np.random.get_state()[1].tolist()
    assert data_equivalence(trace(make(env_id), 3), expected, exact=True)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@every_id
def test_outcomes_follow_the_seed_unless_they_have_one_of_their_own_and_starts_do_anyway(env_id: str) -> None:
    env = make(env_id)

    def stream(seed: int | None = None, **options: int) -> float:
        env.reset(seed=seed, options=options)
        return env.outcome_random.random()

    drawn = [stream(1), stream(2), stream(), stream()]
    assert len(set(drawn)) == 4
    assert [stream(2), stream(), stream()] == drawn[1:]
    assert stream(1, outcome_seed=6) == stream(2, outcome_seed=6) == np.random.default_rng(6).random()
    # Neither such a seed nor play moves later starts.
    plain, seeded = make(env_id), make(env_id)
    plain.reset(seed=5)
    trace(seeded, 5, options={"outcome_seed": 99})
    assert [plain.reset()[0] for _ in range(10)] == [seeded.reset()[0] for _ in range(10)]


DRY = ("Sokoban", "SokobanLarge", "Countdown", "ToyShop", "Tools", "WebShop")


@pytest.mark.parametrize("name", DRY)
def test_nothing_is_left_to_chance_after_the_start(name: str) -> None:
    env = make(f"ragen/{name}-v0")
    for seed in range(4):
        assert trace(env, seed, options={"outcome_seed": 1}) == trace(env, seed, options={"outcome_seed": 2})


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


@every_id
def test_information_names_every_key_and_no_other(env_id: str) -> None:
    env = make(env_id)
    _, info = env.reset(seed=0)
    info_of_step = env.step(random_action(env, np.random.default_rng(0)))[-1]
    section = inspect.cleandoc(type(env).__doc__ or "").partition("## Information\n")[2].partition("\n## ")[0]
    said = re.findall(r"`(\w+)`(?=:|,| and )", section)
    assert set(said) == set(info) == set(info_of_step)
    assert {*EVERY_INFO, *env.idle_info} == set(info)


@every_id
def test_a_vector_plays_as_its_environments_do(env_id: str) -> None:
    vector, singles = gymnasium.make_vec(env_id, 2), [make(env_id) for _ in range(2)]
    assert vector.reset(seed=7)[0] == tuple(env.reset(seed=7 + row)[0] for row, env in enumerate(singles))
    actions = tuple(random_action(env, np.random.default_rng(0)) for env in singles)
    results = [env.step(action) for env, action in zip(singles, actions, strict=True)]
    observations, rewards, *_ = vector.step(actions)
    assert observations == tuple(result[0] for result in results)
    assert rewards.tolist() == [result[1] for result in results]
    vector.close()
