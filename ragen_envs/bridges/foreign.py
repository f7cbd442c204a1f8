"""What all environments of other packages have in common when they are played here.

Each is a `TextEnv` (an action is any text) or a `ToolEnv` (an action is a call of a tool, or words). What the other
side answers is a `Reaction`; rewards, ends and info are passed on as they are.
"""

import abc
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ragen_envs.any_text import AnyText
from ragen_envs.arguments import check_integer
from ragen_envs.calling.env import MAX_CALL_LENGTH, ToolEnv
from ragen_envs.calling.tool import Call, Tool, read_action, write_call
from ragen_envs.errors import EnvError
from ragen_envs.text_env import TextEnv

Success = Callable[[float, bool, Mapping[str, Any]], bool]
"""Says whether a task is solved: from the reward of a step, whether it ended the episode, and the other side's info."""


class ForeignEnvError(EnvError, RuntimeError):
    """The other side could not be reached, or failed for a reason that is not the model's."""


@dataclass(frozen=True)
class Reaction:
    """What the other side answers to an action.

    Attributes:
        text: What it shows.
        reward: Its reward.
        terminated: Whether the task is over.
        truncated: Whether a limit of its own ended the episode.
        info: Its info.
        tool_failed: Whether a called tool failed.
        task: The part of a first text that still holds later, if not all of it does.
    """

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    tool_failed: bool = False
    task: str = ""


def solved(reward: float, over: bool, info: Mapping[str, Any]) -> bool:
    """The default rule of success: what `info` says; where it says nothing, that an episode ends with 1 or more."""
    return bool(info["success"]) if "success" in info else over and reward >= 1


def checked_text(text: object, source: str) -> str:
    """An observation, which must be text.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(text, str):
        kind = type(text).__name__
        raise TypeError(
            f"{source} shows {text!r:.200}, a {kind}, and not text; only environments of text can be played"
        )
    return text


class Foreign(TextEnv, abc.ABC):
    """The part that environments of text and of tools share. Its subclasses name `TextEnv` or `ToolEnv` as well."""

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}}

    _is_success: Success
    _env_info: Mapping[str, Any] = {}

    @abc.abstractmethod
    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        """Starts an episode of the other side.

        Args:
            seed: What `reset` was given, or drawn from `np_random`.
            outcome_seed: The option of `reset`, if it was given.
        """

    @abc.abstractmethod
    def _answer(self, action: str) -> Reaction:
        """Passes an action on: text, or with tools what `_parse_action` returned."""

    def _start(self, options: Mapping[str, Any]) -> str:
        begun = self._begin(self._seed_to_hand_on(), options.get("outcome_seed"))
        self._env_info = begun.info
        self._task = self._cut(begun.task or begun.text)
        return self._cut(begun.text)

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        reaction = self._answer(action)
        self._truncated, self._env_info = reaction.truncated, reaction.info
        over = reaction.terminated or reaction.truncated
        info = {
            "success": self._is_success(reaction.reward, over, reaction.info),
            "action_is_effective": not reaction.tool_failed,
            "env_info": copy.deepcopy(reaction.info),  # the caller may change it
        }
        return self._cut(reaction.text), reaction.reward, reaction.terminated, info

    def _idle(self) -> dict[str, Any]:
        return {**super()._idle(), "env_info": copy.deepcopy(self._env_info)}

    def _cut(self, text: str) -> str:
        most = self.observation_space.max_length  # type: ignore[attr-defined]
        note = f"\n[{len(text)} characters, cut]"
        return text if len(text) <= most else text[: most - len(note)] + note


class ForeignText(Foreign):
    """An environment of another package whose actions are any text that is not blank.

    ``reset(seed=s)`` passes `s` on where the other side takes a seed. The info dict has the keys of `TextEnv`
    (`action_is_effective` is always True after an action) and `env_info`, the other side's own.

    Args:
        instruction: The task, where the first observation does not say it.
        success: Says whether the task is solved, from reward, end and info of a step; by default `solved`.
        max_observation_length: Characters of an observation that are shown, at least 40.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: If the length is too small.
    """

    def __init__(
        self, *, instruction: str, success: Success, max_observation_length: int, render_mode: str | None
    ) -> None:
        """Sets what is shown; the arguments are described in the class docstring."""
        check_integer("max_observation_length", max_observation_length, 40, "leaves no room for an observation")
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(max_observation_length, min_length=0)
        self.action_space = AnyText(MAX_CALL_LENGTH, min_length=0)
        self._instruction, self._is_success = instruction, success

    @property
    def instruction(self) -> str:
        """The task, as given."""
        return self._instruction

    @property
    def task(self) -> str:
        """What the first observation explains, as other packages do there."""
        return self._task

    def _parse_action(self, text: str) -> str | None:
        return text.strip() or None


class ForeignTools(Foreign, ToolEnv):
    """An environment of another package whose tools are called, and which may be spoken to.

    `tools` are known after `reset`. Words instead of a call go to the other side, which may go on. The info dict has
    the keys of `ToolEnv` and `env_info`.

    Args:
        purpose: What every task is about.
        success: As in `ForeignText`.
        max_result_length: Characters of a result that are shown, at least 40.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: If the length is too small.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}, **ToolEnv.idle_info}

    def __init__(self, *, purpose: str, success: Success, max_result_length: int, render_mode: str | None) -> None:
        """Sets what is shown; the arguments are described in the class docstring."""
        super().__init__(render_mode=render_mode, max_result_length=max_result_length)
        self._purpose, self._is_success = purpose, success
        self._tools: tuple[Tool, ...] = ()

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of this episode."""
        return self._tools

    @property
    def purpose(self) -> str:
        """What every task is about, as given or as the other side says."""
        return self._purpose

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        said = read_action(action)
        observation, reward, terminated, info = super()._act(action)
        failed = not info["action_is_effective"]
        info["tool"], info["tool_failed"] = (said.name if isinstance(said, Call) else ""), failed
        return observation, reward, terminated, info

    def _judge(self) -> tuple[float, bool]:
        raise AssertionError("the other side judges")

    def _described(self, name: str, description: str, parameters: Mapping[str, Any]) -> Tool:
        """A tool of the other side. Its `run` is an action of the episode, as `step` is."""

        def run(**arguments: Any) -> str:
            return self._answer(write_call(name, arguments)).text

        whole = {"type": "object", "properties": {}, **parameters}
        return Tool(name, description or name, whole, run)
