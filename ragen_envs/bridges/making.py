"""How the bridges outwards make what they show: one environment, or one in turns with the default limits."""

from collections.abc import Callable

import gymnasium

from ragen_envs.baselines import default_turns
from ragen_envs.turns import AgentTurns

Maker = Callable[[], gymnasium.Env[str, str]]


def make(env: str | Maker) -> gymnasium.Env[str, str]:
    """A new environment.

    Args:
        env: A Gymnasium id, or a function that makes an environment.

    Raises:
        ValueError: If `env` is an environment.
    """
    if isinstance(env, gymnasium.Env):
        raise ValueError(f"{env} is a single environment; pass its id, or a function that makes a new one each time")
    return gymnasium.make(env) if isinstance(env, str) else env()


def make_turns(env: str | Maker) -> AgentTurns:
    """A new environment with the limits of `default_turns`, unless `env` makes an `AgentTurns` with its own."""
    made = make(env)
    return made if isinstance(made, AgentTurns) else AgentTurns(made, **default_turns(made.spec))
