"""What TextFromDiscrete takes, and how it names what it does not take."""

import functools
from typing import Any

import gymnasium
import pytest

from tests.support.ragen_envs.toys import CLIFF, LAKE, Switch, toy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": ("up", "down")}, r"must be 4 names, one for each action of Discrete\(4\)"),
        ({"actions": "urdl"}, "must be 4 names"),
        ({"actions": ("up", "Up", "down", "left")}, "differ in more than case"),
        ({"actions": ("up", " right", "down", "left")}, "name ' right' of an action must be printable ASCII"),
        ({"describe": "human"}, "describe='human' must be 'ansi' or a function"),
        ({"env": functools.partial(Switch, render_mode=None)}, "has render_mode=None; make it with 'ansi'"),
        ({"env": lambda: gymnasium.make("CartPole-v1"), "actions": ("left", "right")}, "cannot show itself as text"),
        ({"env": lambda: gymnasium.make("MountainCarContinuous-v0")}, "wrap an environment with Discrete actions"),
        ({"render_mode": "human"}, "render_mode='human' is unknown"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    given = {"env": "CliffWalking-v1", "actions": CLIFF, **arguments}
    if callable(given["env"]):
        given["env"] = given["env"]()
    with pytest.raises(ValueError, match=message):
        toy(**given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"describe": lambda seen: seen}, r"describe\(\(.*must return text"),
        ({"describe": lambda seen: "♠"}, r"has \['♠'\], which are not in the charset; pass charset="),
        ({"describe": lambda seen: "x" * 2000}, "pass max_observation_length=2000"),
    ],
)
def test_a_description_that_does_not_fit_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy("Blackjack-v1", ("stick", "hit"), **arguments).reset(seed=0)
    fits = toy(
        "Blackjack-v1", ("stick", "hit"), describe=lambda seen: "♠" * 2000, charset="♠", max_observation_length=2000
    )
    assert fits.reset(seed=0)[0] in fits.observation_space


def test_arguments_of_the_environment_within() -> None:
    env = toy("FrozenLake-v1", LAKE, env_kwargs={"map_name": "8x8", "is_slippery": False})
    assert len(env.reset(seed=0)[0].splitlines()) >= 8
