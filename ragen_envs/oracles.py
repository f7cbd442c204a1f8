"""What knows the environment: the best action, a uniformly random one, plans made of both, and how hard a state is.

They give the two rows that every result is compared with, data for a warm start, and proofs that tasks can be solved.
They are `functools.singledispatch` functions on the type of the unwrapped environment: register a policy for a new
environment with ``@best_action.register``. How a family is solved is in its own folder; here is only the register.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from ragen_envs.bandit import Bandit
from ragen_envs.countdown import Countdown
from ragen_envs.countdown.arithmetic import random_expression, solve
from ragen_envs.errors import EnvError
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.frozen_lake.maps import distances
from ragen_envs.frozen_lake.oracle import best_lake_action
from ragen_envs.sokoban import Sokoban
from ragen_envs.sokoban.solver import solver_for
from ragen_envs.text_env import TextEnv
from ragen_envs.textworld import TextWorld
from ragen_envs.tools import Tools, WebShopTools
from ragen_envs.tools.policies import best_call, random_call
from ragen_envs.tools.webshop import as_call, best_shop_call, random_shop_call
from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.recorded import RecordedShop
from ragen_envs.webshop.shoppers import (
    best_shop_action,
    best_toy_action,
    careless_shop_action,
    careless_toy_action,
    goal_difficulty,
    random_shop_action,
    random_toy_action,
)

TextGym = gymnasium.Env[str, str]


class NoOracleError(EnvError, TypeError):
    """No policy is registered for this type of environment."""

    def __init__(self, policy: str, env: object) -> None:
        """Names the policy and the environment, and says what to do."""
        name = type(env).__name__
        super().__init__(f"{policy} knows no {name}; write one and register it with @{policy}.register({name})")


Asked = TypeVar("Asked", bound=Callable[..., Any])


def after_reset(function: Asked) -> Asked:
    """Lets a function of an environment's state, such as an oracle, ask for a `reset` where there is no state yet.

    Raises:
        gymnasium.error.ResetNeeded: By the returned function, before the first `reset`.
    """

    @functools.wraps(function)  # a register keeps its `register` and `dispatch`
    def asked(env: TextGym, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(env, *args, **kwargs)
        except AttributeError as error:
            if isinstance(env.unwrapped, TextEnv) and env.unwrapped.needs_reset:
                name, kind = getattr(function, "__name__", "it"), type(env.unwrapped).__name__
                raise ResetNeeded(f"{name} was called before {kind}.reset; call reset first") from error
            raise

    return cast(Asked, asked)


@after_reset
@functools.singledispatch
def best_action(env: TextGym, actions_left: int) -> str:
    """The best next action, for the true number of actions left.

    Args:
        env: A text environment after `reset`; a wrapped one is unwrapped first. It is not changed.
        actions_left: Number of actions that the episode still allows, including this one; at least 1.

    Returns:
        The name of an action.

    Raises:
        NoOracleError: If no policy is registered for the environment.
        ValueError: If `actions_left` is below 1 where it matters.
        sokoban.solver.SearchLimitError: If a Sokoban level is too large for the solver.
    """
    if env.unwrapped is env:
        raise NoOracleError("best_action", env)
    return best_action(env.unwrapped, actions_left)


@best_action.register
def _(env: Bandit, actions_left: int) -> str:
    return max(env.actions, key=env.expected_reward)


@best_action.register
def _(env: Countdown, actions_left: int) -> str:
    solution = solve(env.numbers, env.target, env.operators)
    assert solution is not None  # tasks are made of a solution
    return solution


@best_action.register
def _(env: Sokoban, actions_left: int) -> str:
    room = env.room
    move = solver_for(room.board).best_move(room.player, room.boxes)
    return move or env.actions[0]  # where nothing can be solved any more, all actions are equally good


@best_action.register
def _(env: TextWorld, actions_left: int) -> str:
    return (env.plan or env.scene.commands)[0]  # where nothing leads to the end, all commands are equally good


@after_reset
@functools.singledispatch
def random_action(env: TextGym, rng: np.random.Generator) -> str:
    """A uniformly random valid action.

    Args:
        env: A text environment after `reset`; a wrapped one is unwrapped first. It is not changed.
        rng: Source of the choice.

    Returns:
        The name of an action.

    Raises:
        NoOracleError: If the environment takes free text and nothing is registered for it.
    """
    if env.unwrapped is env:
        raise NoOracleError("random_action", env)
    return random_action(env.unwrapped, rng)


@random_action.register
def _(env: TextEnv, rng: np.random.Generator) -> str:
    if env.actions is None:
        raise NoOracleError("random_action", env)
    return env.actions[rng.integers(len(env.actions))]


@random_action.register
def _(env: Countdown, rng: np.random.Generator) -> str:
    return random_expression(env.numbers, rng)


@random_action.register
def _(env: TextWorld, rng: np.random.Generator) -> str:
    return env.scene.commands[rng.integers(len(env.scene.commands))]


@best_action.register
def _(env: RecordedShop, actions_left: int) -> str:
    return env.next_action


best_action.register(FrozenLake, best_lake_action)
best_action.register(WebShop, best_shop_action)
best_action.register(ToyShop, best_toy_action)
best_action.register(Tools, best_call)
best_action.register(WebShopTools, best_shop_call)
random_action.register(WebShop, random_shop_action)
random_action.register(ToyShop, random_toy_action)
random_action.register(Tools, random_call)
random_action.register(WebShopTools, random_shop_call)


@after_reset
@functools.singledispatch
def difficulty(env: TextGym) -> float:
    """How hard the present state is, for a curriculum or for results by difficulty; larger is harder.

    Numbers of one environment can be compared with each other, and not with those of another one.

    | environment | number |
    |---|---|
    | Sokoban | moves of a shortest solution |
    | FrozenLake | moves of a shortest path, if nothing slips |
    | Countdown | numbers to combine |
    | TextWorld | commands of a plan to the end |
    | Tools | calls that the shortest way still needs |
    | WebShop, ToyShop, WebShopTools | attributes and options that are asked for, and 1 for a highest price |

    Args:
        env: A text environment after `reset`; a wrapped one is unwrapped first. It is not changed.

    Raises:
        NoOracleError: If nothing is registered for the environment. All bandits are equally hard.
        webshop.remote.HiddenGoalError: If the goal is on a server.

    Example:
        >>> import gymnasium
        >>> env = gymnasium.make("ragen/FrozenLake-v0")
        >>> _ = env.reset(seed=1)
        >>> difficulty(env)
        2.0
    """
    if env.unwrapped is env:
        raise NoOracleError("difficulty", env)
    return difficulty(env.unwrapped)


@difficulty.register
def _(env: Sokoban) -> float:
    distance = solver_for(env.room.board).distance(env.room.player, env.room.boxes)
    return float("inf") if distance is None else float(distance)


@difficulty.register
def _(env: FrozenLake) -> float:
    return float(distances(env.lake).get(env.position, float("inf")))


@difficulty.register
def _(env: Countdown) -> float:
    return float(len(env.numbers))


@difficulty.register
def _(env: TextWorld) -> float:
    return 0.0 if env.scene.won else float(len(env.plan) or "inf")


@difficulty.register
def _(env: Tools) -> float:
    return float(len(env.way))


@difficulty.register
def _(env: WebShop) -> float:
    return float(goal_difficulty(env))


@difficulty.register
def _(env: WebShopTools) -> float:
    return difficulty(env.shop)


@after_reset
def plan(env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float = 0.0) -> list[str]:
    """The next few actions: each the best one, or with probability `noise` a random one.

    They are chosen on a copy of the environment whose outcomes are drawn from `rng`. In a stochastic environment the
    plan therefore cannot see what will happen: the first action is the best one, later actions are best for outcomes
    that are only imagined. In a deterministic environment the plan is exact.

    Args:
        env: A text environment after `reset`; a wrapped one is unwrapped first. It is not changed.
        actions_left: Number of actions that the episode still allows.
        length: The most actions to plan; there are fewer if the copy ends or `actions_left` is smaller.
        rng: Source of the imagined outcomes and of the noise.
        noise: Probability, in [0, 1], that an action is uniformly random.

    Returns:
        Names of actions, in order.

    Raises:
        TypeError: If the unwrapped environment is not a `TextEnv`.
        ValueError: If `noise` is not a probability.
        NoOracleError: If no policy is registered for the environment.
    """
    return _planned(env, actions_left, length, rng, noise, uniformly_noisy_action)


def uniformly_noisy_action(env: TextGym, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    """The best action or, with probability `noise`, a uniformly random one; arguments and errors are those of both."""
    at_random = noise > 0.0 and rng.random() < noise
    return random_action(env, rng) if at_random else best_action(env, actions_left)


# The actions of demonstrations. An environment whose actions are free text registers its own noise: from searches that
# are random as a whole, a model learns to ignore the request.
demonstrated_action = functools.singledispatch(uniformly_noisy_action)


@demonstrated_action.register
def _(env: WebShop, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    return careless_shop_action(env, actions_left, rng, noise)


@demonstrated_action.register
def _(env: ToyShop, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    return careless_toy_action(env, rng, noise)


@demonstrated_action.register
def _(env: WebShopTools, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    return as_call(careless_shop_action(env.shop, actions_left, rng, noise))


@after_reset
def demonstration(
    env: TextGym, actions_left: int, length: int, rng: np.random.Generator, noise: float = 0.0
) -> list[str]:
    """The next few actions of a demonstration: `plan`, with the noise that suits the environment.

    `demonstrated_action` chooses each action. In general it is the best action or a uniformly random one. In WebShop,
    by calls too, it is that of a shopper who searches for words of the request, with the mistakes of
    `webshop.shoppers`. In ToyShop it is a search, each of whose words is wrong with probability `noise`, and then the
    purchase of the first result.

    Arguments, return value and errors are those of `plan`.
    """
    return _planned(env, actions_left, length, rng, noise, demonstrated_action)


def _planned(
    env: TextGym,
    actions_left: int,
    length: int,
    rng: np.random.Generator,
    noise: float,
    choose: Callable[[TextEnv, int, np.random.Generator, float], str],
) -> list[str]:
    """Actions that are chosen one after the other on a copy."""
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise={noise} is not a probability; use a number from 0 to 1")
    imagined = _imagine(env.unwrapped, rng)
    actions: list[str] = []
    for done in range(min(length, actions_left)):
        actions.append(choose(imagined, actions_left - done, rng, noise))
        _, _, terminated, truncated, _ = imagined.step(actions[-1])
        if terminated or truncated:
            break
    return actions


def _imagine(env: TextGym, rng: np.random.Generator) -> TextEnv:
    """A copy with separate outcomes.

    Spaces, spec and the generator of start states are shared: actions do not change them, and copying them would take
    twelve times as long as the rest.
    """
    if not isinstance(env, TextEnv):
        raise TypeError(f"plan needs a TextEnv to re-seed its outcomes; {type(env).__name__} is not one")
    shared = (env.observation_space, env.action_space, env.spec, env.np_random)
    memo: dict[int, Any] = {id(part): part for part in shared}
    memo[id(env.outcome_random)] = np.random.default_rng(rng.integers(2**63))
    return copy.deepcopy(env, memo)
