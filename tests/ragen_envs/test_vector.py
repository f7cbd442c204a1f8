"""TextVectorEnv: the same as Gymnasium's SyncVectorEnv, seed for seed, with clear errors."""

import copy
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ragen_envs import AgentTurns, Bandit, FrozenLake, TextEnv
from ragen_envs.oracles import random_action
from ragen_envs.vector import TextVectorEnv
from tests.support.ragen_envs.registered import every_id

NAMES = {"ragen/Bandit-v0": "bandit", "ragen/FrozenLake-v0": "frozen_lake", "ragen/SokobanLarge-v0": "sokoban"}

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
    assert assert_same_play(sync, ours, 40) >= 16  # 4 environments, and a limit of 6 steps


@every_id
def test_keeps_the_registered_step_limit(env_id: str) -> None:
    sync, ours = pair(env_id, AutoresetMode.NEXT_STEP, num_envs=1)
    limit = gymnasium.spec(env_id).max_episode_steps or 110
    for vector in (sync, ours):
        vector.reset(seed=0)
        ends = [bool(vector.step(("no such action",))[3][0]) for _ in range(110)]
        assert ends.index(True) + 1 == limit if limit < 110 else not any(ends)


def test_minus_one_is_no_step_limit_as_in_make() -> None:
    _, ours = pair("ragen/FrozenLake-v0", AutoresetMode.NEXT_STEP, num_envs=1, max_episode_steps=-1)
    ours.reset(seed=0)
    assert not any(ours.step(("no such action",))[3][0] for _ in range(150))


@every_mode
def test_infos_of_any_type_are_merged_as_gymnasium_does(mode: AutoresetMode) -> None:
    sync = SyncVectorEnv([Diary] * 6, autoreset_mode=mode)
    ours = TextVectorEnv(Diary, 6, autoreset_mode=mode)
    assert {env.reset(seed=31 + row) and env.style for row, env in enumerate(sync.envs)} == {0, 1, 2}
    assert assert_same_play(sync, ours, 20) > 6


def test_info_columns_by_hand() -> None:
    ours = TextVectorEnv(FrozenLake, 3, autoreset_mode="SameStep", max_episode_steps=2, is_slippery=False)
    ours.reset(seed=0)
    ours.step(("no such action",) * 3)
    ours.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    before = ours.step(("no such action", "", "\n"))
    assert before[3].tolist() == [False, True, True]
    assert before[4]["_final_obs"].tolist() == before[4]["_final_info"].tolist() == [False, True, True]
    assert before[4]["final_obs"][0] is None and before[4]["final_obs"][1].count("\n") == 3
    assert before[4]["final_obs"][1] != before[0][1]
    assert before[4]["final_info"]["_slipped"].tolist() == [False, True, True]
    assert before[4]["action_is_valid"].dtype == np.bool_ and before[4]["_slipped"].tolist() == [True] * 3


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


def test_results_are_not_written_to_later() -> None:
    ours = TextVectorEnv(Bandit, 8, high_probability=1.0)
    ours.reset(seed=0)
    result = ours.step(("Dragon",) * 8)
    kept = copy.deepcopy(result)
    for _ in range(3):
        ours.step(("Phoenix",) * 8)
    assert_same(result, kept)
    result[4]["_success"][:] = False  # nor do two masks share their memory
    assert result[4]["_arm"].all() and result[1].tolist() == [1.0] * 8


def test_vector_wrappers_and_attributes_work() -> None:
    arms = TextVectorEnv(Bandit, 2, render_mode="ansi", low_reward=0.125)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(arms)
    texts, _ = envs.reset(seed=0)
    assert envs.unwrapped.render() == texts
    assert envs.unwrapped.get_attr("low_reward") == (0.125, 0.125)
    infos = envs.step(("Phoenix", "no such action"))[-1]
    assert infos["episode"]["r"].tolist() == [0.125, 0.0] and infos["_episode"].tolist() == [True, False]
    envs.close()
    assert envs.unwrapped.closed


@pytest.mark.parametrize("env_id", NAMES)
def test_named_entry_points_build_the_registered_environments(env_id: str) -> None:
    spec = copy.deepcopy(gymnasium.spec(env_id))
    spec.vector_entry_point = f"ragen_envs.vector:{NAMES[env_id]}_vector"
    envs = gymnasium.make_vec(gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()), 2)
    assert isinstance(envs, TextVectorEnv)
    assert envs.reset(seed=6)[0] == gymnasium.make_vec(env_id, 2, "sync").reset(seed=6)[0]
    assert gymnasium.make_vec(envs.spec).reset(seed=6)[0] == envs.reset(seed=6)[0]


def test_gymnasium_takes_wrappers_with_a_vector_entry_point_only_when_sync_is_named() -> None:
    spec = copy.deepcopy(gymnasium.spec("ragen/FrozenLake-v0"))
    spec.vector_entry_point = "ragen_envs.vector:frozen_lake_vector"
    with pytest.raises(gymnasium.error.Error, match="wrappers argument"):
        gymnasium.make_vec(spec, 2, wrappers=[AgentTurns])
    messages, _ = gymnasium.make_vec(spec, 2, "sync", wrappers=[AgentTurns]).reset(seed=0)
    assert all("Turn 1 of 5" in message for message in messages)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs=0.*use 1 or more"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps=0 leaves nothing to play; use 1 or more"),
        ({"autoreset_mode": "never"}, ValueError, "'never' is not a valid AutoresetMode"),
        ({"sizes": 4}, TypeError, "sizes"),
        ({"size": 1}, ValueError, "size=1"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TextVectorEnv(FrozenLake, **arguments)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (("Left",), ValueError, r"actions \('Left',\) must be 2 strings"),
        (("Left",) * 3, ValueError, "must be 2 strings, one for each environment"),
        ("Up", ValueError, "actions 'Up' must be 2 strings"),  # two characters, two environments
        (("Left", 3), TypeError, "action 3 of environment 1 is of type int"),
        ((None, "Up"), TypeError, "action None of environment 0"),
    ],
)
def test_wrong_actions_are_refused_before_anything_moves(actions: Any, error: type[Exception], message: str) -> None:
    ours = TextVectorEnv(FrozenLake, 2, max_episode_steps=2)
    texts, _ = ours.reset(seed=0)
    with pytest.raises(error, match=message):
        ours.step(actions)
    result = ours.step(("no such action",) * 2)
    assert result[0] == texts and not result[3].any()


@pytest.mark.parametrize(
    ("seed", "options", "message"),
    [
        ([1, 2, 3], None, "3 seeds for 2 environments"),
        (None, {"reset_mask": [True, False]}, r"reset_mask=\[True, False\] must be a bool array of shape \(2,\)"),
        (None, {"reset_mask": np.array([1, 0])}, "must be a bool array"),
        (None, {"reset_mask": np.zeros(2, dtype=bool)}, "resets nothing"),
        (None, {"outcome_sede": 3}, "'outcome_sede'.*outcome_seed"),
    ],
)
def test_wrong_resets_are_named(seed: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextVectorEnv(FrozenLake, 2).reset(seed=seed, options=options)


def test_steps_without_a_reset_are_refused() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        TextVectorEnv(Bandit, 2).step(("Phoenix", "Dragon"))
    ours = TextVectorEnv(Bandit, 3, autoreset_mode=AutoresetMode.DISABLED)
    ours.reset(seed=0)
    ours.step(("Phoenix", "no such action", "Dragon"))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"environments \[0, 2\] have ended; reset\(options="):
        ours.step(("Phoenix",) * 3)


@pytest.mark.parametrize("env_id", NAMES)
def test_make_vec_uses_it_by_default(env_id: str) -> None:
    assert isinstance(gymnasium.make_vec(env_id, 2), TextVectorEnv)
