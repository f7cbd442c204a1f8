"""What an environment knows of itself, asked from outside: it is unwrapped, and the method of `TextEnv` is called.

The first two functions give the two rows that every result is compared with; plans and demonstrations of both are data
for a warm start. All raise `NoOracleError` if the environment lacks the method, and `gymnasium.error.ResetNeeded`
before the first `reset`. They take a text environment in any wrappers, and do not change it.
"""

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from ragen_envs.arguments import check_probability
from ragen_envs.text_env import NoOracleError, TextEnv

TextGym = gymnasium.Env[str, str]


def best_action(env: TextGym, actions_left: int) -> str:
    """The best next action, where so many may follow, this one included; see `TextEnv.best_action`.

    Raises:
        NoOracleError: If the environment has no oracle.
        sokoban.solver.SearchLimitError: If a Sokoban room is too large for the solver.
    """
    return str(_method(env, "best_action")(actions_left))


def random_action(env: TextGym, rng: np.random.Generator) -> str:
    """A uniformly random valid action; `NoOracleError` if an environment of free text does not say how to draw one."""
    return str(_method(env, "random_action")(rng))


def difficulty(env: TextGym) -> float:
    """How hard the present state is, for a curriculum or for results by difficulty; larger is harder.

    Only numbers of one environment can be compared: Sokoban counts moves of a shortest solution, FrozenLake those of a
    shortest path, Countdown numbers, TextWorld commands and Tools calls to the end, a shop what is asked for.

    Raises:
        NoOracleError: If the environment does not say. All bandits are equally hard.
        webshop.remote.HiddenGoalError: If the goal is on a server.
    """
    return float(_method(env, "difficulty")())


def explain(env: TextGym, actions: Sequence[str], rng: np.random.Generator | None = None) -> str:
    """One or two true sentences that lead to an answer, for `AgentTurns.format_reply`; see `TextEnv.explain`.

    The wording is drawn from `rng`; by default a state always gets the same words.

    Raises:
        NoOracleError: If the environment has no thoughts.

    Example:
        >>> lake = gymnasium.make("ragen/FrozenLake-v0", is_slippery=False)
        >>> _ = lake.reset(seed=1)
        >>> explain(lake, [best_action(lake, 10)])
        'The goal is 1 to the right and 1 down. I get closer with Down.'
    """
    return str(_method(env, "explain")(actions, np.random.default_rng(0) if rng is None else rng))


def plan(
    env: TextGym,
    actions_left: int,
    length: int,
    rng: np.random.Generator,
    noise: float = 0.0,
    kind: type[TextEnv] = TextEnv,
) -> list[str]:
    """The next few actions: each the best one, or with probability `noise` a random one.

    They are chosen on a copy of the environment whose outcomes are drawn from `rng`, so that no plan sees what will
    happen: where outcomes are random, all but the first action are best for outcomes that are only imagined.

    Args:
        env: A `TextEnv` after `reset`, in any wrappers.
        actions_left: Number of actions that the episode still allows.
        length: The most actions to plan; there are fewer if the copy ends or `actions_left` is smaller.
        rng: Source of the imagined outcomes and of the noise.
        noise: Probability, in [0, 1], that an action is uniformly random.
        kind: The class whose `TextEnv.demonstrated_action` chooses them.

    Raises:
        ValueError: If `noise` is not a probability.
        NoOracleError: If the environment has no oracle.
    """
    check_probability("noise", noise)
    game: Any = env.unwrapped
    if not isinstance(game, TextEnv):
        raise TypeError(f"plan needs a TextEnv to re-seed its outcomes; {type(game).__name__} is not one")
    _method(game, "best_action")  # asks for a reset
    # Actions change none of these, and copying them would take twelve times as long as the rest.
    shared = (game.observation_space, game.action_space, game.spec, game.np_random)
    memo: dict[int, Any] = {id(part): part for part in shared}
    memo[id(game.outcome_random)] = np.random.default_rng(rng.integers(2**63))
    imagined = copy.deepcopy(game, memo)
    actions: list[str] = []
    for left in range(actions_left, max(0, actions_left - length), -1):
        actions.append(kind.demonstrated_action(imagined, left, rng, noise))
        _, _, terminated, truncated, _ = imagined.step(actions[-1])
        if terminated or truncated:
            break
    return actions


def demonstration(
    env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float = 0.0
) -> list[str]:
    """`plan`, with the noise that suits the environment: each action by its own `TextEnv.demonstrated_action`."""
    return plan(env, actions_left, length, rng, noise, type(env.unwrapped))  # type: ignore[arg-type]


def _method(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """A method of the unwrapped environment, which was reset."""
    game = env.unwrapped
    if isinstance(game, TextEnv) and not hasattr(game, "outcome_random"):
        raise ResetNeeded(f"{name} was called before {type(game).__name__}.reset; call reset first")
    method = getattr(game, name, None)  # an environment that is no `TextEnv` may have it, too
    if method is None:
        raise NoOracleError(name, game)
    return method
