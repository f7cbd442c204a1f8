"""TextVectorEnv: the same as Gymnasium's SyncVectorEnv, seed for seed."""

import copy
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ragen_envs import FrozenLake, TextEnv
from ragen_envs.oracles import random_action
from ragen_envs.vector import TextVectorEnv
from tests.support.ragen_envs.registered import every_id

every_mode = pytest.mark.parametrize("mode", list(AutoresetMode))


class Diary(TextEnv):
    """Three actions long. Its info has every type that Gymnasium merges differently, and changing keys."""

    idle_info: ClassVar[Mapping[str, Any]] = {"steps": 0, "mean": np.float32(0), "flag": np.bool_(False), "page": ""}

    @property
    def instruction(self) -> str:
        return "Write three times."

    @property
    def actions(self) -> tuple[str, ...]:
        return ("write",)

    def _start(self, options: Mapping[str, Any]) -> str:
        self.steps = 0
        self.style = int(self.np_random.integers(3))
        return f"style {self.style}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.steps += 1
        info: dict[str, Any] = {
            **{"success": self.steps == 3, "action_is_effective": True, "steps": self.steps},
            **{"mean": np.float32(self.steps / 7), "flag": np.bool_(True), "page": ("p", self.steps)},
        }
        if self.style == 1:
            info["nested"] = {"depth": self.steps}
        if self.style == 2:
            info["vector"] = np.arange(3) + self.steps
        return f"line {self.steps}", 0.5, self.steps == 3, info


def pair(env_id: str, mode: AutoresetMode, num_envs: int = 4, **kwargs: Any) -> tuple[SyncVectorEnv, TextVectorEnv]:
    """The vector environments of an id: Gymnasium's, and ours as `make_vec` builds it."""
    spec = copy.deepcopy(gymnasium.spec(env_id))
    spec.vector_entry_point = functools.partial(TextVectorEnv, type(gymnasium.make(env_id).unwrapped))
    sync = gymnasium.make_vec(env_id, num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)
    return sync, gymnasium.make_vec(spec, num_envs, autoreset_mode=mode, **kwargs)


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal in value, type, dtype and keys, all the way down."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tolist() == theirs.tolist()
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


def assert_same_play(sync: SyncVectorEnv, ours: TextVectorEnv, steps: int) -> int:
    """Plays valid and invalid actions on both, from one seed; returns how many episodes ended."""
    rng = np.random.default_rng(5)
    assert_same(ours.reset(seed=31), sync.reset(seed=31))
    ended = 0
    for _ in range(steps):
        valid = [random_action(env, rng) for env in sync.envs]
        actions = tuple(action if rng.random() < 0.8 else "no such action" for action in valid)
        result = sync.step(actions)
        assert_same(ours.step(actions), result)
        mask = result[2] | result[3]
        ended += int(mask.sum())
        if sync.autoreset_mode == AutoresetMode.DISABLED and mask.any():
            again = [vector.reset(options={"reset_mask": mask.copy()}) for vector in (ours, sync)]
            assert_same(*again)
    return ended


@every_id
@every_mode
def test_plays_as_sync_does_seed_for_seed_through_autoresets(env_id: str, mode: AutoresetMode) -> None:
    sync, ours = pair(env_id, mode, max_episode_steps=6)
    assert isinstance(ours, TextVectorEnv) and ours.metadata == sync.metadata
    assert (ours.observation_space, ours.action_space) == (sync.observation_space, sync.action_space)
    assert assert_same_play(sync, ours, 16) >= 4  # 4 environments, and a limit of 6 steps


@every_mode
def test_infos_of_any_type_are_merged_as_gymnasium_does(mode: AutoresetMode) -> None:
    sync = SyncVectorEnv([Diary] * 6, autoreset_mode=mode)
    ours = TextVectorEnv(Diary, 6, autoreset_mode=mode)
    assert {env.reset(seed=31 + row) and env.style for row, env in enumerate(sync.envs)} == {0, 1, 2}
    assert assert_same_play(sync, ours, 20) > 6


@pytest.mark.parametrize("seed", [None, 7, np.int64(7), [3, None, 5], (9, 9, 9)])
def test_seeds_are_those_of_sync(seed: Any) -> None:
    sync, ours = pair("ragen/FrozenLake-v0", AutoresetMode.NEXT_STEP, num_envs=3)
    for vector in (sync, ours):
        vector.reset(seed=1)
    theirs = sync.reset(seed=int(seed) if isinstance(seed, np.integer) else seed, options={"outcome_seed": 4})
    assert_same(ours.reset(seed=seed, options={"outcome_seed": 4}), theirs)
    for _ in range(5):
        assert_same(ours.step(("Left", "Up", "Down")), sync.step(("Left", "Up", "Down")))


def test_a_mask_resets_some_and_keeps_the_options_of_the_caller() -> None:
    ours = TextVectorEnv(FrozenLake, 3)
    first, _ = ours.reset(seed=[1, 2, 3])
    mask = np.array([False, True, False])
    options = {"reset_mask": mask, "outcome_seed": 5}
    second, infos = ours.reset(seed=[8, 9, 10], options=options)
    assert options == {"reset_mask": mask, "outcome_seed": 5}
    assert (second[0], second[2]) == (first[0], first[2])
    assert second[1] == FrozenLake().reset(seed=9)[0] != first[1]
    assert infos["_success"].tolist() == [False, True, False]
