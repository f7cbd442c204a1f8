"""How the bridges outwards make what they show: one environment, or one in turns with RAGEN's limits.

Left out: copies of an environment that exists, because each session, episode or process has its own.
"""

from collections.abc import Callable

import gymnasium

from ragen_envs.baselines import HORIZONS
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
    """A new environment with RAGEN's limits, unless `env` makes an `AgentTurns` with its own."""
    made = make(env)
    if isinstance(made, AgentTurns):
        return made
    most = horizon(made)
    return AgentTurns(made, max_turns=min(5, most), max_actions_per_turn=min(5, most), max_actions=most)


def horizon(env: gymnasium.Env[str, str]) -> int:
    """RAGEN's number of actions for its environments, else 10."""
    return 10 if env.spec is None else HORIZONS.get(env.spec.id, 10)
