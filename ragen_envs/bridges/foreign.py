"""What the environments of other packages have in common when they are played here.

Each is a `TextEnv` (an action is any text) or a `ToolEnv` (an action is a call of a tool, or words). What the other
side answers is a `Reaction`; rewards, ends and info are passed on as they are.
"""

import abc
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.tool import Call, Tool, foreign_tool, read_action, write_call
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
    """

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    tool_failed: bool = False


def solved(reward: float, over: bool, info: Mapping[str, Any]) -> bool:
    """The default rule of success: what `info` says; where it says nothing, that an episode ends with 1 or more."""
    return bool(info["success"]) if "success" in info else over and reward >= 1


class Foreign(TextEnv, abc.ABC):
    """The part that environments of text and of tools share.

    Attributes:
        _is_success: The rule of success, which a subclass sets.
    """

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
        self._task = self._cut(begun.text)
        return self._task

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


class ForeignTools(Foreign, ToolEnv):
    """An environment of another package whose tools are called, and which may be spoken to.

    Words instead of a call go to the other side, which may go on. The info dict has the keys of `ToolEnv` and
    `env_info`.

    Attributes:
        tools: The tools of this episode, known after `reset`.
        purpose: What every task is about.

    Args:
        purpose: What every task is about.
        success: Says whether the task is solved, from reward, end and info of a step.
        max_result_length: Characters of a result that are shown, at least 40.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: If the length is too small.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}, **ToolEnv.idle_info}
    tools: Sequence[Tool] = ()
    purpose: str = ""

    def __init__(self, *, purpose: str, success: Success, max_result_length: int, render_mode: str | None) -> None:
        """Sets what is shown; the arguments are described in the class docstring."""
        super().__init__(render_mode=render_mode, max_result_length=max_result_length)
        self.purpose, self._is_success = purpose, success

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        said = read_action(action)
        observation, reward, terminated, info = super()._act(action)
        info["tool"] = said.name if isinstance(said, Call) else ""
        info["tool_failed"] = not info["action_is_effective"]
        return observation, reward, terminated, info

    def _described(self, name: str, description: str | None, schema: Mapping[str, Any] | None) -> Tool:
        """A tool of the other side. Its `run` is an action of the episode, as `step` is."""
        return foreign_tool(name, description, schema, lambda **given: self._answer(write_call(name, given)).text)

    def _judge(self) -> tuple[float, bool]:
        raise AssertionError("the other side judges")
