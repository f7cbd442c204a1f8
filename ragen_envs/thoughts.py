"""Oracles in words: one or two true sentences before an answer, computed from the state.

`explain` dispatches on the type of the unwrapped environment; register your own with ``@explain.register``. The rules:

- Every sentence is true of the state and says nothing that a player cannot know: no outcomes, seeds or values.
- The last action that the thought names is the first action of the answer.
- An action that plainly does not lead on, as noisy demonstrations have them, is tried; nothing praises it.
- Wording and length differ, and are drawn from a generator.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from ragen_envs.bandit import Bandit
from ragen_envs.bandit.thoughts import bandit_thought
from ragen_envs.countdown import Countdown
from ragen_envs.countdown.thoughts import countdown_thought
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.frozen_lake.thoughts import lake_thought
from ragen_envs.oracles import NoOracleError, TextGym, after_reset, best_action
from ragen_envs.sokoban import Sokoban
from ragen_envs.sokoban.thoughts import sokoban_thought
from ragen_envs.textworld import TextWorld
from ragen_envs.textworld.thoughts import adventure_thought
from ragen_envs.tools import Tools, WebShopTools
from ragen_envs.tools.thoughts import call_thought
from ragen_envs.tools.webshop import shop_call_thought
from ragen_envs.turns import AgentTurns
from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.thoughts import shop_thought, toy_thought

Explained = TypeVar("Explained", bound=Callable[..., str])


def _filled(function: Explained) -> Explained:
    """Lets `explain` be asked without actions and a generator, before the type of the environment is looked at."""

    @functools.wraps(function)  # a register keeps its `register` and `dispatch`
    def filled(env: TextGym, actions: Sequence[str] | None = None, rng: np.random.Generator | None = None) -> str:
        if actions is None:
            if not isinstance(env, AgentTurns):
                said = "does not know how many actions are left; give actions, or wrap it in AgentTurns"
                raise ValueError(f"{env} {said}")
            actions = [best_action(env, env.actions_left)]
        if isinstance(actions, str):
            raise TypeError(f"actions={actions!r} is a text; give a list, such as [{actions!r}]")
        if not actions:
            raise ValueError("actions=[] leave nothing to explain; give the actions of the answer")
        return function(env.unwrapped, actions, np.random.default_rng(0) if rng is None else rng)

    return cast(Explained, filled)


@after_reset
@_filled
@functools.singledispatch
def explain(env: TextGym, actions: Sequence[str] | None = None, rng: np.random.Generator | None = None) -> str:
    """One or two true sentences that lead to an answer.

    A function that is registered for a type gets the unwrapped environment, at least one action and a generator.

    Args:
        env: A text environment after `reset`; a wrapped one is unwrapped first. It is not changed.
        actions: The actions of the answer; by default the best one, which needs an `AgentTurns`.
        rng: Source of the wording; by default a state always gets the same words.

    Returns:
        The thought, for `AgentTurns.format_reply`.

    Raises:
        NoOracleError: If nothing is registered for the environment.
        ValueError: If there are no actions.
        TypeError: If they are a text and no list.

    Example:
        >>> import gymnasium
        >>> turns = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", is_slippery=False))
        >>> _ = turns.reset(seed=1)
        >>> explain(turns)
        'The goal is 1 to the right and 1 down. I get closer with Down.'
    """
    raise NoOracleError("explain", env)


explain.register(Bandit, bandit_thought)
explain.register(Countdown, countdown_thought)
explain.register(FrozenLake, lake_thought)
explain.register(Sokoban, sokoban_thought)
explain.register(TextWorld, adventure_thought)
explain.register(Tools, call_thought)
explain.register(ToyShop, toy_thought)
explain.register(WebShop, shop_thought)
explain.register(WebShopTools, shop_call_thought)
