"""ToolEnv: the base class of environments whose actions are calls of tools, and how a result becomes text."""

import abc
import asyncio
import dataclasses
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import gymnasium

from ragen_envs.arguments import check_integer
from ragen_envs.calling.tool import Schema, Tool, ToolError, ToolSignatureError, read_action, write_answer, write_call
from ragen_envs.text_env import TEXT_CHARSET, AnyText, TextEnv

MAX_CALL_LENGTH = 4096  # of action_space; step accepts longer ones
Judgement = tuple[float, bool] | tuple[float, bool, Mapping[str, Any]]
"""What a judge returns: reward and whether the task is done, or reward, terminated and info, as `TextEnv._act` does."""

_SPELLING = 'An action is one call, written as JSON: {"name": "the tool", "arguments": {"its argument": "a value"}}'


class ToolEnv(TextEnv):
    """An environment whose actions are calls of tools, as JSON text.

    An action is ``{"name": …, "arguments": {…}}``, or ``{"answer": …}``, which ends the episode with words. It is
    invalid, and changes nothing, if it is neither, if no tool has that name, or if the arguments do not meet the tool's
    schema; `fault` says which. A tool that raises an exception was called: the observation is then an error message.
    An asynchronous tool runs to its end in an event loop of its own. Texts are of any characters (`AnyText`).

    A subclass provides `tools`, `_start` (which returns the task in words) and `_judge`.

    The info dict has the keys of `TextEnv` and:

    | key | meaning |
    |---|---|
    | `tool` | name of the called tool; "" if none was called |
    | `tool_failed` | the tool raised an exception; `action_is_effective` is then False |
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"tool": "", "tool_failed": False}

    def __init__(self, *, render_mode: str | None = None, max_result_length: int = 2000) -> None:
        """Builds the spaces.

        Args:
            render_mode: "ansi", "rgb_array" or None.
            max_result_length: Characters of a result that are shown, at least 40; the rest is cut, and the result says
                so.

        Raises:
            ValueError: If the length is out of its range.
        """
        check_integer("max_result_length", max_result_length, 40, "leaves no room for a result")
        super().__init__(render_mode=render_mode)
        # Of any characters: what tools return, and what a model asks them, is not ours.
        self.observation_space = AnyText(max_result_length, min_length=0, charset=TEXT_CHARSET)
        self.action_space = AnyText(MAX_CALL_LENGTH, min_length=0, charset=TEXT_CHARSET)
        self.max_result_length = max_result_length

    @property
    @abc.abstractmethod
    def tools(self) -> Sequence[Callable[..., Any] | Tool]:
        """What may be called: functions with hints and docstrings (`Tool.of`), or tools. They may differ by episode."""

    @property
    def purpose(self) -> str:
        """What every task is about, in a line or two."""
        return "Carry out the task by calling tools."

    @abc.abstractmethod
    def _judge(self) -> Judgement:
        """Judges the state after a call that did not fail.

        Returns:
            ``(reward, done)``: `done` ends the episode with success. Or ``(reward, terminated, info)`` where the two
            differ, as in a game that can be lost: ``(0.0, True, {"success": False})``. The info must have `success`;
            other keys are those of `idle_info`.
        """

    def _answered(self, text: str) -> Judgement:
        """Judges an answer in words, which ends the episode, as `_judge` does; by default it earns nothing."""
        return 0.0, False

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """Descriptions of the tools, as a chat template's `tools` takes them."""
        return tuple(tool.schema for tool in self._by_name().values())

    @property
    def instruction(self) -> str:
        """The purpose, and the tools and the form of a call, for a model that has no tool calls of its own."""
        lines = [f"- {tool.signature}: {tool.description}" for tool in self._by_name().values()]
        return "\n".join([self.purpose, _SPELLING, "Tools:", *lines])

    @property
    def task(self) -> str:
        """The task of this episode."""
        return self._task

    def fault(self, action: str) -> str | None:
        """Why an action, any string, is invalid, in words that do not repeat it; None if it is valid."""
        said = read_action(action)
        if said is None:
            return 'the call is not JSON of the form {"name": ..., "arguments": {...}}'
        if isinstance(said, str):
            return None
        tools = self._by_name()
        if said.name not in tools:
            return f"there is no such tool; the tools are {', '.join(tools)}"
        return tools[said.name].fault(said.arguments)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; see `TextEnv.reset`."""
        self._task, info = super().reset(seed=seed, options=options)
        return self._task, info

    def _by_name(self) -> dict[str, Tool]:
        tools = [Tool.of(tool) for tool in self.tools]
        found = {tool.name: tool for tool in tools}
        if len(found) < len(tools):
            raise ToolSignatureError(f"two tools of {type(self).__name__} have the same name; give each its own")
        return found

    def _parse_action(self, text: str) -> str | None:
        said = read_action(text)
        if said is None or self.fault(text) is not None:
            return None
        return write_answer(said) if isinstance(said, str) else write_call(said.name, said.arguments)

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        said = read_action(action)
        if isinstance(said, str):
            reward, _, info = _read(self, "_answered", self._answered(said))
            return "The episode is over.", reward, True, {**self.idle_info, "action_is_effective": True, **info}
        assert said is not None  # `_parse_action` returned it
        failed = True
        try:
            found = self._by_name()[said.name].run(**said.arguments)
            if inspect.iscoroutine(found):
                with ThreadPoolExecutor(1) as pool:  # this thread may have an event loop, as a notebook's does
                    found = pool.submit(asyncio.run, found).result()
            text, failed = as_text(found), False
        except ToolError as error:
            text = f"Error: {error}"
        except (Exception, SystemExit) as error:  # the tool's code is not ours, and a model may give it anything
            text = f"Error: {type(error).__name__}: {error}"
        reward, terminated, info = (0.0, False, {"success": False}) if failed else _read(self, "_judge", self._judge())
        called = {"action_is_effective": not failed, "tool": said.name, "tool_failed": failed}
        return self._shown(text), reward, terminated, {**self.idle_info, **called, **info}

    def _shown(self, text: str) -> str:
        return cut(text, self.max_result_length)


def _read(env: ToolEnv, judge: str, judged: Judgement) -> tuple[float, bool, dict[str, Any]]:
    """Reward, terminated and info of what a judge returned in either form."""
    reward, terminated, info = judged if len(judged) == 3 else (*judged, {"success": judged[1]})
    if len(judged) == 2 and terminated and reward <= 0.0:
        meant = f"return ({reward:g}, True, {{'success': False}}) for an end without it, or with True if it is meant"
        gymnasium.logger.warn(f"{type(env).__name__}.{judge} returned {judged!r}, which counts as success; {meant}")
    return float(reward), bool(terminated), {**info, "success": bool(info["success"])}


def as_text(result: Any) -> str:
    """A result as text: a string as it is, anything else as JSON.

    What JSON does not know is written as Python's `str` writes it (dates, decimals, paths), arrays and sets as lists.

    Raises:
        TypeError: If the result is still to be computed: a function, or an iterator. It would count as a success.
    """
    return result if isinstance(result, str) else json.dumps(_plain(result), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """The value in types that JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, Set):
        value = sorted(value, key=str)
    elif hasattr(value, "tolist"):  # an array or a number of NumPy's
        value = value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key if isinstance(key, str | int | float | None) else str(key): _plain(value[key]) for key in value}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if callable(value) or isinstance(value, Iterator | Awaitable):
        raise TypeError(f"the tool returned {value!r:.100}, which is no result yet")
    return str(value)


def cut(text: str, most: int) -> str:
    """The text within a limit, with a note where it is cut. Half of a surrogate pair, which is no character, is "?"."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most:
        return text
    note = f"\n[{len(text)} characters, cut]"
    return text[: most - len(note)] + note
