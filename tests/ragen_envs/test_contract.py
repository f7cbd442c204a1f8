"""What every registered environment promises. A new one is tested by registering it."""

import copy
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode

from ragen_envs import AgentTurns, TextEnv
from ragen_envs.oracles import best_action, plan, random_action

IDS = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))
STOCHASTIC = {"ragen/Bandit-v0", "ragen/BanditRev-v0", "ragen/FrozenLake-v0"}
GARBAGE = ("", " ", "\n", "no such action", "x" * 100_000, "日本語 \x00 \ud800", "Left || Down", "<answer>")
EVERY_INFO = {"success", "action_is_valid", "action_is_effective"}
TURN_INFO = {
    *EVERY_INFO,
    *("turn", "actions", "invalid_actions", "surplus_actions", "num_actions", "actions_left", "format_is_valid"),
    *("env_reward", "format_penalty", "action_rewards", "limit"),
}

every_id = pytest.mark.parametrize("env_id", IDS)


def make(env_id: str) -> TextEnv:
    """The bare environment."""
    env = gymnasium.make(env_id).unwrapped
    assert isinstance(env, TextEnv)
    return env


def trace(env: TextEnv, seed: int, steps: int = 12, options: dict[str, Any] | None = None) -> list[Any]:
    """What an episode of random actions, a function of `seed`, returns."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = [env.reset(seed=seed, options=options)]
    for _ in range(steps):
        seen.append(env.step(random_action(env, rng)))
        if seen[-1][2]:
            break
    return seen


def test_the_ids_are_registered() -> None:
    assert {"ragen/Bandit-v0", "ragen/BanditRev-v0", "ragen/FrozenLake-v0"} <= set(IDS)
    assert gymnasium.make("ragen_envs:ragen/FrozenLake-v0").spec.max_episode_steps == 100


@every_id
def test_gymnasium_checker_passes_without_warnings(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, disable_env_checker=True).unwrapped)


@every_id
@pytest.mark.parametrize("think", [True, False])
def test_gymnasium_checker_passes_for_agent_turns(env_id: str, think: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")  # it is a wrapper
        check_env(AgentTurns(gymnasium.make(env_id), think=think))


@every_id
def test_spec_of_agent_turns_rebuilds_it(env_id: str) -> None:
    env = AgentTurns(gymnasium.make(env_id), max_turns=3, think=False)
    twin = gymnasium.make(env.spec)
    assert isinstance(twin, AgentTurns)
    assert twin.reset(seed=4) == env.reset(seed=4)
    assert "Turn 1 of 3" in twin.reset(seed=4)[0]


@every_id
def test_twins_play_the_same_episode(env_id: str) -> None:
    for seed in range(5):
        assert data_equivalence(trace(make(env_id), seed), trace(make(env_id), seed), exact=True)


@every_id
def test_start_does_not_depend_on_the_process(env_id: str) -> None:
    program = (
        f"import gymnasium, ragen_envs; print([gymnasium.make({env_id!r}).reset(seed=seed)[0] for seed in range(20)])"
    )
    here = str([gymnasium.make(env_id).reset(seed=seed)[0] for seed in range(20)])
    run = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "1234"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert run.stdout.strip() == here


@every_id
def test_outcome_seed_keeps_the_start_and_draws_other_outcomes(env_id: str) -> None:
    env = make(env_id)
    traces = [trace(env, 7, options={"outcome_seed": outcome}) for outcome in range(40)]
    assert all(data_equivalence(each[0], traces[0][0], exact=True) for each in traces)
    assert data_equivalence(traces[3], trace(env, 7, options={"outcome_seed": 3}), exact=True)
    if env_id in STOCHASTIC:
        # Several starts: the random action of one of them may be an arm that always pays the same.
        distinct = [
            len({str(trace(env, seed, options={"outcome_seed": outcome})) for outcome in range(20)})
            for seed in range(4)
        ]
        assert max(distinct) > 1


@every_id
def test_outcome_seed_and_play_do_not_move_later_starts(env_id: str) -> None:
    plain, seeded = make(env_id), make(env_id)
    plain.reset(seed=5)
    trace(seeded, 5, options={"outcome_seed": 99})
    assert [plain.reset()[0] for _ in range(10)] == [seeded.reset()[0] for _ in range(10)]


@every_id
def test_siblings_do_not_disturb_one_another(env_id: str) -> None:
    alone = trace(make(env_id), 11)
    env, sibling = make(env_id), make(env_id)
    rng = np.random.default_rng(11)
    together: list[Any] = [env.reset(seed=11)]
    sibling.reset(seed=3)
    for _ in range(len(alone) - 1):
        sibling.reset()
        together.append(env.step(random_action(env, rng)))
        sibling.step(random_action(sibling, np.random.default_rng(0)))
    assert data_equivalence(alone, together, exact=True)


@every_id
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda text: repr(text[:14]))
def test_garbage_is_an_invalid_action_that_changes_nothing(env_id: str, garbage: str) -> None:
    env, untouched = make(env_id), make(env_id)
    start, _ = env.reset(seed=1)
    untouched.reset(seed=1)
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(garbage)
        assert (observation, reward, terminated, truncated) == (start, 0.0, False, False)
        assert (info["success"], info["action_is_valid"], info["action_is_effective"]) == (False, False, False)
    action = random_action(env, np.random.default_rng(0))
    assert data_equivalence(env.step(f" {action.upper()}\n"), untouched.step(action), exact=True)


@every_id
def test_info_keys_and_types_never_change(env_id: str) -> None:
    env = make(env_id)
    infos = [env.reset(seed=2)[1], env.step("no such action")[-1], *(each[-1] for each in trace(env, 2))]
    assert all(set(info) == EVERY_INFO | set(env.idle_info) for info in infos)
    types = {key: type(value) for key, value in infos[0].items()}
    assert all({key: type(value) for key, value in info.items()} == types for info in infos)


@every_id
def test_turn_info_keys_never_change(env_id: str) -> None:
    env = AgentTurns(gymnasium.make(env_id))
    infos = [env.reset(seed=2)[1], env.step("nonsense")[-1]]
    infos.append(env.step(env.format_reply([random_action(env, np.random.default_rng(0))]))[-1])
    infos.append(env.step(env.format_reply(["no such action"]))[-1])
    assert all(set(info) == TURN_INFO | set(make(env_id).idle_info) for info in infos)


@every_id
def test_after_the_end_nothing_happens(env_id: str) -> None:
    env = make(env_id)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(1000):
        final, _, terminated, _, info = env.step(random_action(env, rng))
        if terminated:
            break
    else:
        pytest.skip("random play does not end this one")
    again = env.step(random_action(env, rng))
    assert again[:4] == (final, 0.0, True, False)
    assert (again[4]["success"], again[4]["action_is_valid"]) == (info["success"], False)


@every_id
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"]
)
def test_copies_go_on_alike(env_id: str, duplicate: Any) -> None:
    for env in (gymnasium.make(env_id), AgentTurns(gymnasium.make(env_id))):
        env.reset(seed=8)
        twin = duplicate(env)
        rng = np.random.default_rng(0)
        for _ in range(4):
            action = random_action(env, rng)
            if isinstance(env, AgentTurns):
                action = env.format_reply([action])
            assert data_equivalence(env.step(action), twin.step(action), exact=True)
        assert env.reset() == twin.reset()


@every_id
def test_observations_stay_in_their_space(env_id: str) -> None:
    for env in (gymnasium.make(env_id), AgentTurns(gymnasium.make(env_id))):
        for seed in range(10):
            assert env.reset(seed=seed)[0] in env.observation_space
            action = random_action(env, np.random.default_rng(seed))
            reply = env.format_reply([action]) if isinstance(env, AgentTurns) else action
            assert reply in env.action_space
            assert env.step(reply)[0] in env.observation_space


@every_id
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_sync_vector_matches_single_environments(env_id: str, mode: AutoresetMode) -> None:
    envs = gymnasium.make_vec(
        env_id, num_envs=3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, wrappers=[AgentTurns]
    )
    single = AgentTurns(gymnasium.make(env_id), max_turns=5)
    messages, _ = envs.reset(seed=20)
    assert messages == tuple(single.reset(seed=20 + row)[0] for row in range(3))
    for _ in range(5):
        messages, rewards, terminated, truncated, info = envs.step(("junk",) * 3)
    assert truncated.tolist() == [True] * 3 and rewards.tolist() == [-0.1] * 3
    assert not terminated.any()
    if mode == AutoresetMode.SAME_STEP:
        assert info["final_info"]["limit"].tolist() == ["turns"] * 3
        assert all(message.startswith("The end") for message in info["final_obs"])
    else:
        assert info["limit"].tolist() == ["turns"] * 3
        assert all(message.startswith("The end") for message in messages)
    envs.close()


@every_id
def test_async_vector_matches_sync(env_id: str) -> None:
    sync = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="sync", wrappers=[AgentTurns])
    # Gymnasium reads text from shared memory only once, when it builds the vector: every observation stays empty.
    kwargs = {"shared_memory": False}
    apart = gymnasium.make_vec(
        env_id, num_envs=2, vectorization_mode="async", vector_kwargs=kwargs, wrappers=[AgentTurns]
    )
    try:
        assert sync.reset(seed=1)[0] == apart.reset(seed=1)[0]
        assert sync.step(("junk", "junk"))[0] == apart.step(("junk", "junk"))[0]
    finally:
        apart.close()


@every_id
def test_oracle_and_random_policy_name_valid_actions(env_id: str) -> None:
    rng = np.random.default_rng(0)
    env = gymnasium.make(env_id)
    for seed in range(10):
        env.reset(seed=seed)
        for action in (best_action(env, 10), random_action(env, rng), plan(env, 10, 3, rng)[0]):
            assert copy.deepcopy(env).step(action)[-1]["action_is_valid"]
