"""AgentTurns around environments that are not ours: not a TextEnv, without our info keys, with other rules."""

import copy
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text
from gymnasium.utils.env_checker import check_env, data_equivalence

from ragen_envs import AgentTurns, NoOracleError, random_action
from tests.support.ragen_envs.toys import answer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Scale(gymnasium.Env[str, str]):
    """Weighs: "add" and "take" move the pointer by one or two; it is strict, and has none of our info keys.

    Its rewards and flags are NumPy's, as in many environments.
    """

    def __init__(self) -> None:
        self.observation_space = Text(20, charset="0123456789- kg")
        self.action_space = Text(4, charset=LETTERS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.weight = int(self.np_random.integers(3, 6))
        self.options = options
        return f"{self.weight} kg", {"brand": "Roberval"}

    def step(self, action: str) -> tuple[str, Any, Any, bool, dict[str, Any]]:
        if action not in ("add", "take", "wait"):
            raise KeyError(action)
        sign = {"add": 1, "take": -1, "wait": 0}[action]
        self.weight += sign * int(self.np_random.integers(1, 3))
        empty = np.bool_(self.weight <= 0)
        return f"{self.weight} kg", np.float32(0.5 if empty else -0.25), empty, False, {"brand": "Roberval"}


class Poem(gymnasium.Env[str, str]):
    """Free text: keeps every line, gives a point for each word, and is solved by the word "end"."""

    def __init__(self) -> None:
        self.observation_space = Text(500, min_length=0, charset=LETTERS + " \n♥")
        self.action_space = Text(100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.lines: list[str] = []
        return "♥", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.lines.append(action)
        words = action.split()
        info = {"success": np.bool_("end" in words)}
        return "♥\n" + "\n".join(self.lines), float(len(words)), "end" in words, False, info


def scales(env: gymnasium.Env[str, str] | None = None, **arguments: Any) -> AgentTurns:
    """Turns on a scale; reset with seed 0, at which it shows 5 kg."""
    given = {"instruction": "Empty the scale.", "actions": ("add", "take", "wait"), "think": False, **arguments}
    turns = AgentTurns(env or Scale(), **given)
    turns.reset(seed=0)
    return turns


def plain(*actions: str) -> str:
    """A reply without a thought."""
    return f"<answer>{' || '.join(actions)}</answer>"


def test_every_message_of_a_game() -> None:
    turns = scales(max_turns=3, max_actions=8)
    message, info = turns.reset(seed=0)
    assert message == (
        "Empty the scale.\n"
        "Actions: add, take, wait\n"
        "Limits: actions per turn 5, actions in all 8, turns 3\n"
        "Reply format: <answer>add || take</answer>\n"
        "\n"
        "Turn 1 of 3\nState:\n5 kg\nActions left: 8"
    )
    assert (info["brand"], info["success"], info["action_is_valid"]) == ("Roberval", False, False)
    turns.env.unwrapped.np_random = np.random.default_rng(4)  # it draws 2 from now on
    message, reward, terminated, truncated, info = turns.step(plain("take", "weigh", "TAKE"))
    assert message == (
        "Turn 2 of 3\nUnknown action ignored. Use: add, take, wait\nReward: -0.5\nState:\n1 kg\nActions left: 6"
    )
    assert (reward, terminated, truncated) == (-0.6, False, False)
    assert (info["actions"], info["invalid_actions"]) == (("take", "take"), ("weigh",))
    message, reward, terminated, truncated, info = turns.step(plain("wait", "take", "take"))
    assert message == "The end\nReward: 0.25\nState:\n-1 kg\nActions left: 4"
    assert (reward, bool(terminated), truncated, info["surplus_actions"]) == (0.25, True, False, ("take",))
    assert info["success"] is False  # it never said so


def test_an_action_that_is_not_listed_never_reaches_a_strict_environment() -> None:
    turns = scales(max_turns=99)
    for text in ("", "weigh", "日本", "x" * 100_000, "\ud800", "add take"):
        info = turns.step(plain(text))[-1]
        assert not info["action_is_valid"] and info["actions_left"] == 10


def test_effect_is_read_off_the_observation() -> None:
    turns = scales()
    assert [turns.step(plain(name))[-1]["action_is_effective"] for name in ("add", "wait")] == [True, False]


def test_its_own_time_limit_ends_the_episode() -> None:
    turns = scales(gymnasium.wrappers.TimeLimit(Scale(), 2))
    message, _, terminated, truncated, info = turns.step(plain("add", "weigh", "add", "add"))
    assert (terminated, truncated, info["limit"]) == (False, True, "env")
    assert (info["actions"], info["surplus_actions"]) == (("add", "add"), ("add",))
    assert message.startswith("The end\n") and info["limit_is_told"]
    assert turns.step(plain("add"))[1:4] == (0.0, False, True)  # nothing is sent past the end
    turns.reset(seed=0)
    assert turns.step(plain("add"))[3] is False


class Impatient(Scale):
    """Ends an episode when it likes, and says so to nobody before."""

    def step(self, action: str) -> tuple[str, Any, Any, bool, dict[str, Any]]:
        shown, reward, _, _, info = super().step(action)
        return shown, reward, False, True, info


def test_a_limit_that_comes_as_a_surprise_leaves_a_message_as_before_any_turn() -> None:
    """Regression: a critic was asked for the value of "The end", which no message that it learns from begins with."""
    turns = scales(Impatient())
    message, _, terminated, truncated, info = turns.step(plain("add"))
    assert (terminated, truncated, info["limit"], info["limit_is_told"]) == (False, True, "env", False)
    assert message.startswith("Turn 2 of ") and "The end" not in message
    last = scales(Impatient(), max_turns=1)  # which was told, by its turns
    message, *_, info = last.step(plain("add"))
    assert message.startswith("The end\n") and info["limit_is_told"]


def test_seed_and_options_reach_it() -> None:
    turns, own = scales(), Scale()
    for seed in range(8):
        assert f"State:\n{own.reset(seed=seed)[0]}\n" in turns.reset(seed=seed)[0]
    turns.reset(seed=0, options={"outcome_seed": 3})
    unwrapped = turns.unwrapped
    assert isinstance(unwrapped, Scale) and unwrapped.options == {"outcome_seed": 3}


def test_free_text_is_passed_on_as_written() -> None:
    turns = AgentTurns(Poem(), instruction="Write.", actions=(), action_separator="/")
    message, _ = turns.reset(seed=0)
    assert "Actions:" not in message and "<answer>first action / second action</answer>" in message
    assert message in turns.observation_space
    message, reward, terminated, _, info = turns.step("<think></think><answer>Roses are Red/ the end /no</answer>")
    assert (reward, terminated, info["success"]) == (3.0 + 2.0, True, True)
    assert (info["actions"], info["surplus_actions"]) == (("Roses are Red", "the end"), ("no",))
    assert message == "The end\nReward: 5\nState:\n♥\nRoses are Red\nthe end\nActions left: 8"


def test_gymnasium_checker_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")  # it is a wrapper
        warnings.filterwarnings("ignore", message=".*not having a spec")
        check_env(scales())


def test_copies_pickles_and_specs_play_on_alike() -> None:
    gymnasium.register("test/Scale-v0", Scale, max_episode_steps=50)
    try:
        turns = scales(gymnasium.make("test/Scale-v0"), max_turns=7)
        assert turns.spec is not None
        rebuilt = gymnasium.make(turns.spec)
    finally:
        del gymnasium.registry["test/Scale-v0"]
    rebuilt.reset(seed=0)
    twins = [copy.deepcopy(turns), pickle.loads(pickle.dumps(turns)), rebuilt]
    seen = turns.step(plain("take", "add"))
    assert all(data_equivalence(twin.step(plain("take", "add")), seen, exact=True) for twin in twins)


def test_a_vector_of_them() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: scales(max_turns=1)] * 3)
    messages, _ = envs.reset(seed=[0, 1, 2])
    assert messages == tuple(scales(max_turns=1).reset(seed=seed)[0] for seed in range(3))
    messages, rewards, _, truncated, info = envs.step((plain("add"), plain("weigh"), "nonsense"))
    assert np.allclose(rewards, [-0.25, -0.1, -0.1]) and truncated.all()
    assert info["limit"].tolist() == ["turns"] * 3


def test_standard_wrappers_go_inside_and_outside() -> None:
    inside = gymnasium.wrappers.TransformReward(Scale(), lambda reward: 10 * reward)
    turns = gymnasium.wrappers.RecordEpisodeStatistics(scales(inside, max_turns=2))
    turns.reset(seed=0)
    assert turns.step(plain("add"))[1] == -2.5
    info = turns.step(plain("weigh"))[-1]
    assert info["episode"]["r"] == pytest.approx(-2.5 - 0.1) and info["episode"]["l"] == 2


def test_no_policy_is_made_up_for_it() -> None:
    with pytest.raises(NoOracleError, match="random_action knows no Scale; write one and register it"):
        random_action(scales(), np.random.default_rng(0))


def test_thinking_is_the_default() -> None:
    turns = scales(think=True)
    assert turns.step(plain("add"))[-1]["format_is_valid"] is False
    assert turns.step(answer("add"))[-1]["format_is_valid"] is True
