"""TextFromDiscrete: a text environment made from one with numbered actions, such as Taxi or Blackjack.

It is no wrapper: it owns the environment, because a `TextEnv` promises more (seeds of outcomes, info, the end).
"""

import copy
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium.utils.env_checker import data_equivalence

from ragen_envs.any_text import AnyText
from ragen_envs.text_env import TEXT_CHARSET, TextEnv, allowed_actions

_COLOURS = ("gray", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_OFF = {0, *range(22, 30), 39, 49}  # codes that end a colour or another mark
_ESCAPE = re.compile(r"\x1b\[\??([0-9;]*)([A-Za-z])")


def spell_out_colours(text: str) -> str:
    r"""Writes a terminal's colours, which alone show the player in Taxi and FrozenLake, as words: ``[red:S]``.

    Text with two colours is in two brackets; the end of one ends the inner bracket, and a reset with a colour ends all
    before it. Text that is only bold becomes ``[marked:…]``. Other escape codes are dropped.

    Example:
        >>> spell_out_colours("\x1b[41mS\x1b[0mFF \x1b[1;34mG\x1b[0m\x1b[2K")
        '[red:S]FF [blue:G]'
    """
    depth = 0

    def spelled(code: re.Match[str]) -> str:
        nonlocal depth
        if code[2] != "m":
            return ""
        numbers = [int(number or 0) for number in code[1].split(";")]
        if _OFF.issuperset(numbers):
            closing, depth = "]" * (depth > 0), max(0, depth - 1)
            return closing
        closing, depth = ("]" * depth, 1) if 0 in numbers else ("", depth + 1)
        coloured = [number % 10 for number in numbers if number // 10 in (3, 4, 9, 10) and number % 10 < 8]
        return f"{closing}[{_COLOURS[coloured[0]] if coloured else 'marked'}:"

    return _ESCAPE.sub(spelled, text)


class TextFromDiscrete(TextEnv):
    """A text environment made from one with a `Discrete` action space.

    ## Action Space
    Text: one of `actions`, in any case, which is passed on as its number.

    ## Observation Space
    Text: what `describe` makes of an observation. "ansi" is the environment's own rendering, without blank lines around
    it and with colours as words (`spell_out_colours`).

    ## Starting State
    ``reset(seed=s)`` starts as the environment does with seed `s`; cards dealt at reset belong to the start. What comes
    then is drawn from the stream of outcomes, which replaces the environment's ``np_random``. An environment with
    another kind of randomness starts by the seed and ignores ``outcome_seed``.

    ## Rewards
    The environment's.

    ## Episode End
    The environment's end and its limits, such as the `TimeLimit` that `gymnasium.make` puts around it.

    ## Information
    `success`: what the function `success` returned for the last action. `action_is_valid`: the action has one of the
    names, whatever the environment's mask says. `action_is_effective`: the environment's observation changed, or the
    episode ended. `env_info`: the environment's own last info.

    ## Arguments
    See `__init__`; ``gymnasium.register("my/Cliff-v0", "ragen_envs:TextFromDiscrete", kwargs={…})`` gives it an id.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}}
    instruction: str = ""
    actions: tuple[str, ...] = ()

    def __init__(
        self,
        env: str | gymnasium.Env[Any, Any],
        actions: Sequence[str],
        *,
        instruction: str,
        success: Callable[[float, bool, dict[str, Any]], bool],
        describe: str | Callable[[Any], str] = "ansi",
        render_mode: str | None = None,
        max_observation_length: int = 1024,
    ) -> None:
        """Takes over an environment.

        Args:
            env: Its Gymnasium id, or the environment itself, which must then not be played elsewhere.
            actions: A name for each action, in the order of their numbers.
            instruction: The task and the legend of its symbols.
            success: Says whether the task is solved, from reward, terminated and info of a step. No rule suits all
                environments: reaching the end is success in Taxi, but not in Blackjack.
            describe: "ansi", or a function that turns an observation into text.
            render_mode: "ansi", "rgb_array" or None; both modes show the observation's text.
            max_observation_length: Longest observation, in characters.

        Raises:
            ValueError: If there is not a name for each action, or an environment shows no text.
        """
        if isinstance(env, str):
            env = gymnasium.make(env, render_mode="ansi" if describe == "ansi" else None)
        if describe == "ansi" and env.render_mode != "ansi":
            raise ValueError(f"{env} has render_mode={env.render_mode!r}; make it with 'ansi', or pass describe=")
        numbers: Any = env.action_space
        if len(actions) != numbers.n:
            raise ValueError(f"actions={actions!r} must be {numbers.n} names, one for each action")
        super().__init__(render_mode=render_mode, max_action_length=max(64, *map(len, actions)))
        self.observation_space = AnyText(max_observation_length, min_length=0, charset=TEXT_CHARSET)
        self.env, self.actions, self._first = env, tuple(actions), int(numbers.start)
        self.instruction, self._is_success, self._describe = instruction, success, describe
        self._seen: Any = None  # the environment's own last observation
        self._env_info: dict[str, Any] = {}

    @property
    def steps_left(self) -> int | None:
        """Actions that a `TimeLimit` around the environment within still allows."""
        left = allowed_actions(self.env, sys.maxsize)
        return None if left == sys.maxsize else left

    def _start(self, options: Mapping[str, Any]) -> str:
        # Always a seed, so that neither actions nor another kind of randomness can change a later start.
        self._seen, self._env_info = self.env.reset(seed=self._seed_to_hand_on())
        return self._text()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        before = copy.deepcopy(self._seen)  # some environments change their observation in place
        self.env.unwrapped.np_random = self.outcome_random
        number = self._first + self.actions.index(action)
        self._seen, reward, terminated, truncated, self._env_info = self.env.step(number)
        self._truncated = bool(truncated)
        over = bool(terminated) or self._truncated
        info = {
            "success": bool(self._is_success(float(reward), bool(terminated), self._env_info)),
            "action_is_effective": over or not data_equivalence(before, self._seen, exact=True),
            "env_info": copy.deepcopy(self._env_info),  # the caller may change it
        }
        return self._text(), float(reward), bool(terminated), info

    def _idle(self) -> dict[str, Any]:
        return {**super()._idle(), "env_info": copy.deepcopy(self._env_info)}

    def _text(self) -> str:
        if callable(self._describe):
            return self._describe(self._seen)
        return spell_out_colours(str(self.env.render())).strip("\n")

    def close(self) -> None:
        """Closes the environment that this one owns."""
        self.env.close()
