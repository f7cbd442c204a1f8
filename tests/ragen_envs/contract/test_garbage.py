"""Every registered environment with text that is not an action: a model may write anything, and nothing breaks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from ragen_envs import AgentTurns, ToolTurns
from ragen_envs.oracles import random_action
from tests.support.ragen_envs.registered import EVERY_INFO, around, every_id, every_turns, make, turn_info

GARBAGE = ("", " ", "\n", "no such action", "x" * 100_000, "日本語 \x00 \ud800", "Left || Down", "<answer>")
# Strings that may upset a parser: each is an action or not, as the environment likes, and never an exception.
HARD = (
    *("(" * 100_000, "(" * 50_000 + "1" + ")" * 50_000, "-" * 100_000 + "1", "9" * 100_000, "1+" * 50_000 + "1"),
    *("9**9**9**9", "1<<99999", "1/0", "0/0", "1e999", "nan", "1_000", "0x1", "1.5", "１＋２", "²", "1 2", "()", "-"),
    *("__import__('os').getcwd()", "{x}", "%s", "\\", "\x00", "\ud800", "\u202eUp", "U\u0301p", "ſ", "İ", "1-"),
    *("<answer>" * 12_500, "<think>" * 14_000, "</answer><answer>" * 6_000, "||" * 50_000, " " * 100_000),
)



def random_garbage(rng: np.random.Generator) -> str:
    """A string that is not an action anywhere: it has a character that no environment knows, or is blank or huge."""
    length = int(rng.integers(1, 60))
    strange = "".join(map(chr, rng.integers(0x110000, size=length)))  # surrogates and unassigned ones among them
    ascii_text = "".join(map(chr, rng.integers(128, size=length)))
    return ("", " \t\n", "¿" * 100_000, f"¿{strange}", f"{ascii_text}¿", "日本語")[rng.integers(6)]


@contextmanager
def naming(text: str) -> Iterator[None]:
    """Adds the start of the text to an error that it causes."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {ascii(text[:40])}, {len(text)} characters")
        raise


def assert_well_formed(env: gymnasium.Env[str, str], result: tuple[Any, ...], keys: set[str]) -> None:
    """What a step may return, whatever the action was."""
    observation, reward, terminated, truncated, info = result
    assert observation in env.observation_space
    assert type(reward) is float and np.isfinite(reward)
    assert type(terminated) is type(truncated) is bool
    assert info.keys() == keys
    assert all(type(info[key]) is bool for key in EVERY_INFO)


@every_id
def test_garbage_is_an_invalid_action_that_changes_nothing(env_id: str) -> None:
    env, untouched = make(env_id), make(env_id)
    for garbage in GARBAGE:
        start, _ = env.reset(seed=1)
        untouched.reset(seed=1)
        for _ in range(3):
            observation, reward, terminated, truncated, info = env.step(garbage)
            assert (observation, reward, terminated, truncated) == (start, 0.0, False, False), garbage[:14]
            assert [info[key] for key in EVERY_INFO] == [False, False, False], garbage[:14]
        action = random_action(env, np.random.default_rng(0))
        written = action if env.actions is None else action.upper()  # names are matched in any case
        assert data_equivalence(env.step(f" {written}\n"), untouched.step(action), exact=True), garbage[:14]


@every_id
def test_200_random_episodes_of_garbage_among_actions(env_id: str) -> None:
    env, untouched = make(env_id), make(env_id)
    rng = np.random.default_rng(0)
    keys = EVERY_INFO | set(env.idle_info)
    for episode in range(200):
        now = env.reset(seed=episode)[0]
        untouched.reset(seed=episode)
        ended = False
        for _ in range(10):
            result = env.step(random_garbage(rng))
            assert_well_formed(env, result, keys)
            assert (result[0], result[1], result[-1]["action_is_valid"]) == (now, 0.0, False)
            assert (result[2] or result[3]) == ended
            action = random_action(untouched, rng)
            result = env.step(action)
            assert_well_formed(env, result, keys)
            assert result == untouched.step(action)
            assert result[-1]["action_is_valid"] != ended
            now, ended = result[0], result[2] or result[3]


@every_turns
def test_200_random_episodes_of_garbage_among_replies(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = wrapper(gymnasium.make(env_id), max_turns=5)
    rng = np.random.default_rng(0)
    keys = turn_info(env_id, wrapper)
    for episode in range(200):
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


@every_turns
def test_hard_strings_are_no_exceptions(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = make(env_id)
    turns = wrapper(env)
    for text in HARD:
        env.reset(seed=1)
        with naming(text):
            assert_well_formed(env, env.step(text), EVERY_INFO | set(env.idle_info))
        for reply in (text, around(turns, text), f"<think>{text}</think><answer>Up</answer>"):
            turns.reset(seed=1)
            with naming(reply):
                assert_well_formed(turns, turns.step(reply), turn_info(env_id, wrapper))


@every_id
def test_damaged_actions_are_no_exceptions(env_id: str) -> None:
    """Nearly right is harder to read than wrong: valid actions cut, doubled and with characters changed."""
    env = make(env_id)
    rng = np.random.default_rng(0)
    keys = EVERY_INFO | set(env.idle_info)
    for episode in range(300):
        start, _ = env.reset(seed=episode)
        action = random_action(env, rng)
        cut = int(rng.integers(len(action) + 1))
        character = (action + " ()-+*/=0.,")[rng.integers(len(action) + 11)]
        for text in (action[:cut], action[cut:], action[:cut] + character + action[cut + 1 :], action + action[cut:]):
            result = env.step(text)
            assert_well_formed(env, result, keys)
            if result[-1]["action_is_valid"]:
                break
            assert result[:4] == (start, 0.0, False, False)
