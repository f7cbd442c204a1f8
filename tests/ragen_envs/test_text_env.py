"""TextEnv itself, with a very small free-form environment."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, Bandit, FrozenLake, TextEnv
from ragen_envs.text_env import TEXT_CHARSET


class Echo(TextEnv):
    """Adds numbers: `add 3` adds 3 and a random 0 or 1; terminated from 10 on."""

    idle_info: ClassVar[Mapping[str, Any]] = {"added": 0}

    @property
    def instruction(self) -> str:
        return "Reach 10 with lines such as: add 3"

    def _start(self, options: Mapping[str, Any]) -> str:
        self.total = int(self.np_random.integers(3))
        return str(self.total)

    def _parse_action(self, text: str) -> str | None:
        words = text.split()
        return words[1] if len(words) == 2 and words[0] == "add" and words[1] in set("123456789") else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        added = int(action) + int(self.outcome_random.integers(2))
        self.total += added
        success = self.total >= 10
        return (
            str(self.total),
            float(success),
            success,
            {"success": success, "action_is_effective": True, "added": added},
        )


def test_a_subclass_gets_the_whole_api() -> None:
    env = Echo()
    _, info = env.reset(seed=0)
    assert info == {"success": False, "action_is_valid": False, "action_is_effective": False, "added": 0}
    _, reward, terminated, truncated, info = env.step("add 1")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["action_is_valid"] and info["added"] in (1, 2)
    _, reward, terminated, truncated, info = env.step("add 9")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert env.actions is None


def test_charset_is_printable_ascii_newline_and_tick() -> None:
    assert len(TEXT_CHARSET) == 95 + 2
    assert set("aZ09 ~|<>\n√") <= set(TEXT_CHARSET)
    assert "\t" not in TEXT_CHARSET


def test_step_and_render_before_reset_say_so() -> None:
    for call in (lambda: FrozenLake().step("Left"), lambda: FrozenLake(render_mode="rgb_array").render()):
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
            call()


def test_step_refuses_what_is_no_text() -> None:
    env = FrozenLake()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="action 3 is of type int; step takes a string"):
        env.step(3)  # type: ignore[arg-type]


def test_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'outcome_sede'.*outcome_seed"):
        FrozenLake().reset(seed=1, options={"outcome_sede": 3})


@pytest.mark.parametrize("seed", [-1, "7", 1.5])
def test_outcome_seed_must_be_a_non_negative_integer(seed: Any) -> None:
    with pytest.raises(ValueError, match="must be an integer >= 0"):
        FrozenLake().reset(seed=1, options={"outcome_seed": seed})


def test_outcome_seed_may_be_a_numpy_integer() -> None:
    env = Echo()
    env.reset(seed=1, options={"outcome_seed": np.int64(5)})
    first = env.step("add 1")
    env.reset(seed=1, options={"outcome_seed": 5})
    assert env.step("add 1") == first


def test_outcomes_without_an_outcome_seed_follow_the_seed() -> None:
    env = Echo()
    draws = []
    for seed in range(64):
        env.reset(seed=seed)
        draws.append(env.step("add 1")[-1]["added"] - 1)
        env.reset(seed=seed)
        assert env.step("add 1")[-1]["added"] - 1 == draws[-1]
    assert 16 < sum(draws) < 48  # fails by chance for one choice of 64 fair draws in 20 000


def test_ansi_render_is_the_observation() -> None:
    env = Bandit(render_mode="ansi")
    observation, _ = env.reset(seed=0)
    assert env.render() == observation


def test_render_without_a_mode_warns_as_gymnasium_does() -> None:
    env = Bandit()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without a render mode"):
        assert env.render() is None


def test_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="render_mode='human'.*ansi"):
        Bandit(render_mode="human")


class Broken(Echo):
    """Mistakes of authors of environments, one at a time."""

    start: Any = "0"
    outcome: Any = ("1", 0.0, False, {"success": False, "action_is_effective": True, "added": 1})

    def _start(self, options: Mapping[str, Any]) -> str:
        return self.start

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return self.outcome


@pytest.mark.parametrize("outcome", [("1", 0.0, False), ("1", 0.0, False, {}), ("1", 0.0, False, "info"), None])
def test_what_act_should_return_is_said(outcome: Any) -> None:
    env = Broken()
    env.reset(seed=0)
    env.outcome = outcome
    with pytest.raises(TypeError, match=re.escape(f"Broken._act returned {outcome!r}; it returns (observation")):
        env.step("add 1")


def test_what_start_should_return_is_said() -> None:
    env = Broken()
    env.start = 5
    with pytest.raises(TypeError, match="Broken._start returned 5; it returns the text to show"):
        env.reset()


class Silent(Broken):
    """No actions."""

    _parse_action = TextEnv._parse_action


class Speechless(Broken):
    """Nobody says what to do."""

    instruction = None


class Twins(Silent):
    """Two actions of one name."""

    actions = ("a", "b", "A")


class Numbered(Silent):
    """Actions that are not text."""

    actions = (1, 2)


class Unmade(Broken):
    """Half an `__init__`, as Gymnasium's own environments have it."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = self.action_space = gymnasium.spaces.Text(9)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Silent, "Silent has no valid action; define actions or _parse_action"),
        (Speechless, "Speechless.instruction is None; it is the text that says what to do"),
        (Twins, "Twins.actions has 'a' and 'A'; names are matched in any case and must differ in more"),
        (Numbered, "Numbered.actions has 1; the name of an action is text"),
        (Unmade, "Unmade.__init__ does not call super().__init__(); call it before anything else"),
    ],
)
def test_mistakes_of_a_subclass_are_told(kind: type[TextEnv], said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        kind().reset()
    with pytest.raises(TypeError, match=re.escape(said)):
        AgentTurns(kind())


@pytest.mark.parametrize("outcome_seed", [True, -1, 1.0, "1"])
def test_outcome_seeds_that_are_none_are_named(outcome_seed: Any) -> None:
    with pytest.raises(ValueError, match=f"outcome_seed={outcome_seed!r} must be an integer >= 0"):
        Echo().reset(options={"outcome_seed": outcome_seed})
