"""What every registered environment promises in Gymnasium's own vector environments, in every autoreset mode."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from ragen_envs import AgentTurns
from ragen_envs.oracles import random_action
from tests.support.ragen_envs.registered import around, every_id, every_turns

LIMIT = 3  # steps an episode: every environment ends often, whatever is played

every_mode = pytest.mark.parametrize("mode", list(AutoresetMode))

Vector = SyncVectorEnv | AsyncVectorEnv


class Row:
    """One environment of a vector, played by hand as the autoreset mode says."""

    def __init__(self, env_id: str, mode: AutoresetMode, seed: int) -> None:
        self.env = gymnasium.make(env_id, max_episode_steps=LIMIT)
        self.mode = mode
        self.start = self.env.reset(seed=seed)
        self.has_ended = False

    def step(self, action: str) -> tuple[Any, ...]:
        """The five values of a vector's row, and (observation, info) of an episode that the row no longer shows."""
        if self.has_ended and self.mode == AutoresetMode.NEXT_STEP:
            self.has_ended = False
            observation, info = self.env.reset()
            return observation, 0.0, False, False, info, None
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.has_ended = terminated or truncated
        final = None
        if self.has_ended and self.mode == AutoresetMode.SAME_STEP:
            final = observation, info
            observation, info = self.env.reset()
        return observation, reward, terminated, truncated, info, final


def row_of(infos: dict[str, Any], row: int) -> dict[str, Any]:
    """The info dict of one environment."""
    return {
        key: row_of(column, row) if isinstance(column, dict) else column[row]
        for key, column in infos.items()
        if not key.startswith("_") and infos[f"_{key}"][row]
    }


def make_vector(env_id: str, mode: AutoresetMode, kind: str, **kwargs: Any) -> Vector:
    """Two environments of an id; processes without shared memory, see the last two tests."""
    vector_kwargs: dict[str, Any] = {"autoreset_mode": mode}
    if kind == "async":
        vector_kwargs["shared_memory"] = False
    return gymnasium.make_vec(env_id, 2, kind, vector_kwargs=vector_kwargs, **kwargs)


def assert_row(result: tuple[Any, ...], row: int, expected: tuple[Any, ...]) -> None:
    """Row `row` of what a vector's step returned is what the environment alone returned."""
    observation, reward, terminated, truncated, info, final = expected
    assert (result[0][row], result[1][row], result[2][row], result[3][row]) == (
        *(observation, reward, terminated, truncated),
    )
    shown = row_of(result[4], row)
    if final is not None:
        assert (shown.pop("final_obs"), shown.pop("final_info")) == final
    assert shown == info


@every_id
@every_mode
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_matches_single_environments(env_id: str, mode: AutoresetMode, kind: str) -> None:
    rng = np.random.default_rng(0)
    rows = [Row(env_id, mode, seed=20 + row) for row in range(2)]
    envs = make_vector(env_id, mode, kind, max_episode_steps=LIMIT)
    try:
        observations, infos = envs.reset(seed=20)
        assert [(observations[row], row_of(infos, row)) for row in range(2)] == [each.start for each in rows]
        ended = 0
        for _ in range(10):
            actions = tuple("no such action" if rng.random() < 0.3 else random_action(each.env, rng) for each in rows)
            result = envs.step(actions)
            for row, each in enumerate(rows):
                assert_row(result, row, each.step(actions[row]))
            mask = result[2] | result[3]
            ended += int(mask.sum())
            if mode == AutoresetMode.DISABLED and mask.any():
                observations, infos = envs.reset(options={"reset_mask": mask})
                for row in np.flatnonzero(mask):
                    assert (observations[row], row_of(infos, row)) == rows[row].env.reset()
        assert ended >= 4
    finally:
        envs.close()


@every_turns
@every_mode
def test_turns_keep_the_final_message(env_id: str, wrapper: type[AgentTurns], mode: AutoresetMode) -> None:
    envs = make_vector(env_id, mode, "sync", wrappers=[partial(wrapper, max_turns=5)])
    single = wrapper(gymnasium.make(env_id), max_turns=5)
    reply = around(single, "no such action")
    messages, _ = envs.reset(seed=20)
    assert messages == tuple(single.reset(seed=20 + row)[0] for row in range(2))
    for _ in range(5):
        messages, rewards, terminated, truncated, info = envs.step((reply,) * 2)
    assert truncated.tolist() == [True] * 2 and rewards.tolist() == [-0.1] * 2
    assert not terminated.any()
    if mode == AutoresetMode.SAME_STEP:
        assert info["final_info"]["limit"].tolist() == ["turns"] * 2
        assert tuple(info["final_obs"]) == last_messages(single, reply)
        assert not set(messages) & set(info["final_obs"])
    else:
        assert info["limit"].tolist() == ["turns"] * 2
        assert messages == last_messages(single, reply)
    envs.close()


def last_messages(env: AgentTurns, reply: str) -> tuple[str, ...]:
    """Those of two episodes with the same reply five times."""
    found = []
    for row in range(2):
        env.reset(seed=20 + row)
        found.append([env.step(reply)[0] for _ in range(5)][-1])
    return tuple(found)


@every_turns
def test_turns_work_in_processes(env_id: str, wrapper: type[AgentTurns]) -> None:
    mode = AutoresetMode.NEXT_STEP
    sync, apart = (make_vector(env_id, mode, kind, wrappers=[wrapper]) for kind in ("sync", "async"))
    try:
        assert data_equivalence(apart.reset(seed=1), sync.reset(seed=1), exact=True)
        assert apart.step(("junk", "junk"))[0] == sync.step(("junk", "junk"))[0]
    finally:
        apart.close()


def test_gymnasium_reads_text_from_shared_memory_by_value() -> None:
    """Numbers are a view of the memory and stay up to date; text is a copy of the moment it was read."""
    space = gymnasium.spaces.Text(5, min_length=0, charset="abc")
    memory = create_shared_memory(space, n=1)
    once = read_from_shared_memory(space, memory, n=1)
    write_to_shared_memory(space, 0, "cab", memory)
    assert once == ("aaaaa",)  # zeros, hence the first character
    assert read_from_shared_memory(space, memory, n=1) == ("cab",)


def test_gymnasium_reads_shared_memory_only_once() -> None:
    """Why text needs ``shared_memory=False``. When this fails, Gymnasium is fixed: remove that from our docs."""
    envs = gymnasium.make_vec("ragen/FrozenLake-v0", 1, "async")
    try:
        start, infos = envs.reset(seed=1)
        assert infos["_success"].all()  # the environment works; only what is seen of it is wrong
        assert start == envs.step(("Left",))[0] == (" " * 20,)
    finally:
        envs.close()
