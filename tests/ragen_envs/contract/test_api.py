"""What every registered environment promises of its API. A new one is tested by registering it.

The other files of this folder test garbage, seeding, vectors, docstrings and Gymnasium's wrappers.
"""

import copy
import inspect
import pickle
import re
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from ragen_envs import AgentTurns, TextEnv
from ragen_envs.cli.lookup import creator
from ragen_envs.oracles import best_action, plan, random_action
from tests.support.ragen_envs.registered import EVERY_INFO, around, every_id, every_turns, make, turn_info

SELF_TRUNCATING = {"ragen/Sokoban-v0", "ragen/SokobanLarge-v0", "ragen/WebShop-v0"}

every_copy = pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"]
)


@pytest.mark.parametrize(
    ("env_id", "first", "limit"),
    [
        ("ragen/Bandit-v0", r"Machines: (Phoenix, Dragon|Dragon, Phoenix)", None),
        ("ragen/BanditRev-v0", r"Machines: (Phoenix, Dragon|Dragon, Phoenix)", None),
        ("ragen/Countdown-v0", r"Numbers: \d+(, \d+){2,3}\nTarget: \d\d", None),
        ("ragen/FrozenLake-v0", r"([PG_O]{4}\n){3}[PG_O]{4}", 100),
        ("ragen/Sokoban-v0", r"(?=[^X]*X[^X]*$)([#_OXPS]{6}\n){5}[#_OXPS]{6}", None),
        ("ragen/SokobanLarge-v0", r"(?=[^X]*X[^X]*X[^X]*$)([#_OXPS]{8}\n){7}[#_OXPS]{8}", None),
    ],
)
def test_what_the_ids_stand_for(env_id: str, first: str, limit: int | None) -> None:
    env = gymnasium.make(f"ragen_envs:{env_id}")
    assert re.fullmatch(first, env.reset(seed=0)[0])
    assert env.spec.max_episode_steps == limit
    sets = {"ragen/BanditRev-v0": {"low_name": "Dragon", "high_name": "Phoenix"}}
    sets["ragen/SokobanLarge-v0"] = {"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10}
    assert env.spec.kwargs == sets.get(env_id, {})


@every_id
def test_booleans_are_nothing_else(env_id: str) -> None:
    """Regression: `is_slippery="false"` was taken, and the lake slipped."""
    for name, parameter in inspect.signature(creator(gymnasium.spec(env_id))).parameters.items():
        if "bool" in str(parameter.annotation):
            for wrong in ("false", 1, 0.0):
                with pytest.raises(ValueError, match=rf"{name}=.* is a \w+; use True or False, in JSON true or false"):
                    make(env_id, **{name: wrong})
            make(env_id, **{name: np.False_}).reset(seed=0)


@every_id
def test_gymnasium_checker_passes_without_warnings(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, disable_env_checker=True).unwrapped)


@every_turns
@pytest.mark.parametrize("think", [True, False])
def test_gymnasium_checker_passes_for_turns(env_id: str, wrapper: type[AgentTurns], think: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")  # it is a wrapper
        check_env(wrapper(gymnasium.make(env_id), think=think))


@every_turns
def test_specs_rebuild_the_environment(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = gymnasium.make(env_id)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.reset(seed=4) == env.reset(seed=4)
    turns = wrapper(env, max_turns=3, think=False)
    twin = gymnasium.make(turns.spec)
    assert type(twin) is wrapper and twin.max_turns == 3
    assert twin.reset(seed=4) == turns.reset(seed=4)


@every_id
def test_info_keys_and_types_never_change(env_id: str) -> None:
    env = make(env_id)
    infos = [env.reset(seed=2)[1], env.step("no such action")[-1]]
    infos += [env.step(random_action(env, np.random.default_rng(step)))[-1] for step in range(12)]
    assert all(set(info) == EVERY_INFO | set(env.idle_info) for info in infos)
    types = {key: type(value) for key, value in infos[0].items()}
    assert all({key: type(value) for key, value in info.items()} == types for info in infos)
    hash(tuple(infos[0].values()))  # immutable: an info that is kept is not written to later


@every_turns
def test_turn_info_keys_never_change(env_id: str, wrapper: type[AgentTurns]) -> None:
    env = wrapper(gymnasium.make(env_id))
    infos = [env.reset(seed=2)[1], env.step("nonsense")[-1]]
    infos.append(env.step(env.format_reply([random_action(env, np.random.default_rng(0))]))[-1])
    infos.append(env.step(around(env, "no such action"))[-1])
    assert all(set(info) == turn_info(env_id, wrapper) for info in infos)


def play_to_the_end(env: TextEnv, seed: int, with_oracle: bool) -> tuple[Any, ...] | None:
    """The result of the last step of an episode; None if it has more than 1000 steps."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for step in range(1000):
        result = env.step(best_action(env, 1000 - step) if with_oracle else random_action(env, rng))
        if result[2] or result[3]:
            return result
    return None


@every_id
@pytest.mark.parametrize("with_oracle", [True, False], ids=["oracle", "random"])
def test_after_the_end_nothing_happens(env_id: str, with_oracle: bool) -> None:
    env, fresh = make(env_id), make(env_id)
    ends = set()
    for seed in range(5):
        result = play_to_the_end(env, seed, with_oracle)
        if result is None:
            assert not with_oracle, "the oracle does not end this one"
            continue
        final, _, terminated, truncated, info = result
        ends.add((terminated, truncated))
        for action in (random_action(env, np.random.default_rng(0)), "no such action"):
            again = env.step(action)
            assert again[:4] == (final, 0.0, terminated, truncated)
            assert (again[4]["success"], again[4]["action_is_valid"]) == (info["success"], False)
        assert env.reset(seed=0) == fresh.reset(seed=0)
        assert env.step("no such action") == fresh.step("no such action")
        action = random_action(fresh, np.random.default_rng(0))
        assert env.step(action) == fresh.step(action)
    if with_oracle:
        assert (True, False) in ends
    elif env_id in SELF_TRUNCATING:
        assert (False, True) in ends
    assert (True, True) not in ends  # a task that is done is not cut short as well


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


@every_id
@every_copy
def test_copies_made_before_the_first_reset_work(env_id: str, duplicate: Any) -> None:
    env = make(env_id)
    assert duplicate(env).reset(seed=3) == env.reset(seed=3)
    assert duplicate(gymnasium.make(env_id, render_mode="ansi")).unwrapped.render_mode == "ansi"


@every_turns
def test_observations_stay_in_their_space(env_id: str, wrapper: type[AgentTurns]) -> None:
    for env in (gymnasium.make(env_id), wrapper(gymnasium.make(env_id))):
        for seed in range(10):
            assert env.reset(seed=seed)[0] in env.observation_space
            action = random_action(env, np.random.default_rng(seed))
            reply = env.format_reply([action]) if isinstance(env, AgentTurns) else action
            assert reply in env.action_space
            assert env.step(reply)[0] in env.observation_space


@every_id
def test_oracle_and_random_policy_name_valid_actions(env_id: str) -> None:
    rng = np.random.default_rng(0)
    env = gymnasium.make(env_id)
    for seed in range(10):
        env.reset(seed=seed)
        for action in (best_action(env, 10), random_action(env, rng), plan(env, 10, 3, rng)[0]):
            assert copy.deepcopy(env).step(action)[-1]["action_is_valid"]
