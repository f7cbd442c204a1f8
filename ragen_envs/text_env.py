"""TextEnv: the base class of every environment here. It knows nothing about turns, prompts or models."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from ragen_envs.arguments import check_choice, checked_number
from ragen_envs.errors import EnvError
from ragen_envs.render import draw_text

TEXT_CHARSET = "".join(map(chr, range(32, 127))) + "\n√"
"""Every character that our environments write: printable ASCII, newline, and the tick of Sokoban and FrozenLake."""

ONE_SHOT = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
"""`TextEnv.turn_limits` of a game that is one answer."""


class AnyText(gymnasium.spaces.Text):
    """Strings of any characters, up to a length, for texts that were not written here, such as product titles.

    `gymnasium.spaces.Text` stores every character three times, 25 MB for all of Unicode, and copies them with each
    environment of a vector. Here only the length decides what is a member; the characters are those of the samples.

    Example:
        >>> space = AnyText(5, min_length=0, charset="ab")
        >>> "naïve" in space, "Größe 9" in space
        (True, False)
    """

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string whose length is within the bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.min_length}, {self.max_length})"


class NoOracleError(EnvError, TypeError):
    """An environment lacks the method that was asked for."""

    def __init__(self, method: str, env: object) -> None:
        super().__init__(f"{type(env).__name__} has no {method}; write this method of ragen_envs.TextEnv")


class TextEnv(gymnasium.Env[str, str], abc.ABC):
    """An environment whose observations and actions are text.

    A subclass provides `instruction`, `actions`, `_start` and `_act`. What it knows of its own game are methods that it
    may write: `best_action`, `random_action`, `demonstrated_action`, `explain` and `difficulty`. They are called after
    `reset`, change nothing, and draw only from the generator given; one that it lacks raises `NoOracleError`.

    `step` takes any string. One that is not a valid action changes nothing, earns 0 and is reported as
    ``info["action_is_valid"] = False``. After the end of an episode no action is valid: `step` repeats the final
    observation with reward 0, and ``terminated`` or ``truncated`` stays true. An environment with a limit of its own
    sets ``self._truncated`` in `_act`; `steps_left` counts `_steps` against `_max_steps`, which it sets, too.

    ``reset(seed=s)`` fixes everything. ``reset(seed=s, options={"outcome_seed": k})`` keeps the start state of ``s``
    and draws what happens afterwards (slips, pay-outs) from ``k``, so a training group shares its start and not its
    outcomes. Neither this option nor any action moves `np_random`, which draws the starts of later resets.

    The info dict has the same keys from `reset` and `step`:

    | key | meaning |
    |---|---|
    | `success` | the task is solved |
    | `action_is_valid` | the action was understood and carried out; False at reset, where there was none |
    | `action_is_effective` | the action changed the state; False at reset |
    | others | documented by each environment, see `idle_info` |
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    option_names: ClassVar[tuple[str, ...] | None] = ("outcome_seed",)
    """Keys that `reset(options=...)` understands; None for any."""

    idle_info: ClassVar[Mapping[str, Any]] = {}
    """Info keys of this environment, with their values (immutable ones) when no action was carried out."""

    horizon: ClassVar[int | None] = None
    """Actions of an episode in baselines, where a published number or the author's own is not a limit of the game."""

    turn_limits: ClassVar[Mapping[str, int] | None] = None
    """`max_turns`, `max_actions_per_turn` and `max_actions` of `AgentTurns` for this game; None for 5 turns of 5
    actions, 10 in all, which are RAGEN's."""

    plain_arguments: ClassVar[tuple[str, ...]] = ()
    """Arguments whose texts name no file, address or program, so the folder of a stranger's model may set them."""

    learnt_for: ClassVar[tuple[str, Mapping[str, Any]] | None] = None
    """Gymnasium id and arguments of the environment in which a model plays that learnt from this one; None: here."""

    outcome_random: np.random.Generator
    """Source of everything random after the start state. Exists after the first `reset`."""

    _max_steps: int | None = None
    _steps = 0

    def __init__(
        self, *, render_mode: str | None = None, max_observation_length: int = 1024, max_action_length: int = 64
    ) -> None:
        """Builds the spaces.

        Args:
            render_mode: "ansi", "rgb_array" or None; another is a `ValueError`.
            max_observation_length: Longest observation, in characters.
            max_action_length: Longest action that `action_space` declares, in characters. `step` accepts longer ones.
        """
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Text(max_observation_length, min_length=0, charset=TEXT_CHARSET)
        self.action_space = gymnasium.spaces.Text(max_action_length, min_length=0, charset=TEXT_CHARSET)
        self._observation: str | None = None
        self._terminated = self._truncated = self._success = False

    @property
    @abc.abstractmethod
    def instruction(self) -> str:
        """The task and the legend of its symbols, as shown to a model once per episode."""

    @property
    def task(self) -> str:
        """What this episode asks for, where only the first observation says it (for `AgentTurns.opening`); else ""."""
        return ""

    @property
    def actions(self) -> tuple[str, ...] | None:
        """Names of the valid actions, matched in any case; None means free-form text."""
        return None

    @property
    def draws_pictures(self) -> bool:
        """Whether "rgb_array" shows the state, and not only a picture of the text."""
        return type(self)._picture is not TextEnv._picture

    @property
    def picture_instruction(self) -> str:
        """`instruction` for a model that sees the picture: what it shows instead of the legend of symbols."""
        return self.instruction

    @property
    def text_beside_picture(self) -> str:
        """What of the present state the picture does not show, as text; "" if it shows all."""
        return ""

    @property
    def steps_left(self) -> int | None:
        """Valid actions until a limit of its own truncates the episode; None if it has none."""
        return None if self._max_steps is None else self._max_steps - self._steps

    def about(self) -> dict[str, Any]:
        """Facts for a summary of results, in addition to the arguments, as JSON values. It may ask a server."""
        return {}

    def best_action(self, actions_left: int) -> str:
        """The oracle: the best next action, where `actions_left` may follow, this one included; at least 1."""
        raise NoOracleError("best_action", self)

    def random_action(self, rng: np.random.Generator) -> str:
        """A uniformly random valid action. A free-form environment overrides this."""
        if self.actions is None:
            raise NoOracleError("random_action", self)
        return self.actions[rng.integers(len(self.actions))]

    def demonstrated_action(self, actions_left: int, rng: np.random.Generator, noise: float) -> str:
        """The best action or, with probability `noise`, a random one: in free text better a mistake that suits it."""
        at_random = noise > 0.0 and rng.random() < noise
        return self.random_action(rng) if at_random else self.best_action(actions_left)

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """One or two true sentences that lead to an answer with these actions, at least one.

        They say nothing that a player cannot know, such as outcomes, seeds or values; the last action that they name
        is the first of the answer; an action that plainly does not lead on is tried, and nothing praises it.
        """
        raise NoOracleError("explain", self)

    def difficulty(self) -> float:
        """How hard the present state is; larger is harder. Only numbers of one environment can be compared."""
        raise NoOracleError("difficulty", self)

    @abc.abstractmethod
    def _start(self, options: Mapping[str, Any]) -> str:
        """Draws a start state from `np_random` and returns its observation."""

    @abc.abstractmethod
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Carries out a valid action, drawing outcomes from `outcome_random`.

        Args:
            action: A name from `actions`, spelled as there, or what `_parse_action` returned.

        Returns:
            Observation, reward, terminated, and an info dict with `success`, `action_is_effective` and every
            key of `idle_info`; also with `action_is_valid` False if the action turned out to be invalid.
        """

    def _parse_action(self, text: str) -> str | None:
        """The canonical action in any string, or None if it is not one. A free-form environment overrides this."""
        wanted = text.strip().casefold()
        for name in self.actions or ():  # a generator would cost a tenth of a step
            if name.casefold() == wanted:
                return name
        return None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; returns the observation and the info dict of the class docstring.

        Args:
            seed: Seed of `np_random`, which draws the start state and, by default, the outcomes. None continues
                the current stream.
            options: ``{"outcome_seed": int}`` draws the outcomes from this non-negative seed instead.

        Raises:
            ValueError: If an option is unknown or the outcome seed is not a non-negative integer.
        """
        options = options or {}
        for key in options:
            if self.option_names is not None and key not in self.option_names:
                raise ValueError(f"unknown reset option {key!r}; {type(self).__name__} knows {self.option_names}")
        if (outcome_seed := options.get("outcome_seed")) is not None:
            outcome_seed = checked_number("outcome_seed", outcome_seed)
        super().reset(seed=seed)
        self._reset_seed = seed
        self._observation = self._start(options)
        # Drawn even when outcome_seed replaces it, so that the option cannot shift later start states.
        drawn_seed = int(self.np_random.integers(2**63))
        self.outcome_random = np.random.default_rng(drawn_seed if outcome_seed is None else outcome_seed)
        self._terminated = self._truncated = self._success = False
        return self._observation, self._idle()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carries out one primitive action, any string (else `TypeError`); `ResetNeeded` before the first `reset`.

        Returns:
            Observation, reward, terminated, truncated (by the environment's own limit), info.
        """
        if self._observation is None:
            raise ResetNeeded(f"{type(self).__name__}.step was called before reset; call reset first")
        if not isinstance(action, str):
            raise TypeError(f"action {action!r} is of type {type(action).__name__}; step takes a string")
        parsed = None if self._terminated or self._truncated else self._parse_action(action)
        if parsed is None:
            return self._observation, 0.0, self._terminated, self._truncated, self._idle()
        self._observation, reward, self._terminated, info = self._act(parsed)
        self._success = info["success"]
        info.setdefault("action_is_valid", True)
        return self._observation, reward, self._terminated, self._truncated, info

    def _idle(self) -> dict[str, Any]:
        """The info of a reset, or of a step that carried out nothing."""
        return {"success": self._success, "action_is_valid": False, "action_is_effective": False, **self.idle_info}

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """Shows the current state.

        Returns:
            The observation text in "ansi" mode; a picture, uint8 of shape (height, width, 3), in "rgb_array" mode;
            None, with Gymnasium's warning, without a render mode.
        """
        if self._observation is None:
            raise ResetNeeded(f"{type(self).__name__}.render was called before reset; call reset first")
        if self.render_mode is None:
            gymnasium.logger.warn("render was called without a render mode; pass render_mode= to gymnasium.make")
            return None
        return self._picture() if self.render_mode == "rgb_array" else self._observation

    def _picture(self) -> NDArray[np.uint8]:
        """The current state for "rgb_array". A subclass may draw more than the text."""
        assert self._observation is not None
        return draw_text(self._observation)


def allowed_actions(env: gymnasium.Env[Any, Any], most: int) -> int:
    """How many actions the caller's limit, the environment's own and its `TimeLimit` wrappers still allow."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            most = min(most, env._max_episode_steps - (env._elapsed_steps or 0))
        env = env.env
    own = env.steps_left if isinstance(env, TextEnv) else None
    return most if own is None else min(most, own)
