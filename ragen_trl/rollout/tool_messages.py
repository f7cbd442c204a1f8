"""What a chat template writes about tools: their descriptions in the first prompt, and the results of calls.

The template is rendered around marker texts, as in `chat.Chat`, and must only append. How it writes a call says in
which form the model was trained to make one; a template whose calls are not read here is refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jinja2 import TemplateError

from ragen_envs import CALL_FORMATS, CallFormat
from ragen_trl.rollout.control_tokens import ControlTokens

_FIRST, _REPLY, _RESULT = "\u00abfirst\u00bb", "\u00abreply\u00bb", "\u00abresult\u00bb"
_ARGUMENT = "probe_argument"
_PROBE: dict[str, Any] = {
    "name": "probe_tool",
    "description": "A probe.",
    "parameters": {
        "type": "object",
        "properties": {_ARGUMENT: {"type": "integer", "description": "A number."}},
        "required": [_ARGUMENT],
    },
}
_TOOLS: list[dict[str, Any]] = [{"type": "function", "function": _PROBE}]
_CALL: dict[str, Any] = {"name": _PROBE["name"], "arguments": {_ARGUMENT: 1}}

Tools = Sequence[Mapping[str, Any]]


class Render(Protocol):
    """Renders messages by the template that a chat uses."""

    def __call__(
        self, messages: list[dict[str, Any]], *, add_generation_prompt: bool = False, tools: Any = None
    ) -> str:
        """The text of a conversation."""


class ToolMessages:
    """The texts around tools in one chat template; ``refuse`` makes the error for one that cannot be used.

    Attributes:
        call_format: The form in which the template writes calls, one of ``ragen_envs.CALL_FORMATS``.
    """

    def __init__(self, render: Render, control: ControlTokens, refuse: Callable[[str], Exception]) -> None:
        self._render, self._control = render, control
        opening = render([_user(_FIRST)], add_generation_prompt=True, tools=_TOOLS)
        if str(_PROBE["name"]) not in opening:
            raise refuse("does not show tools")
        if not self._only_appends(opening):
            raise refuse("does not append the results of tools to what was there")
        found = self._form(opening)
        if found is None:
            raise refuse(f"writes calls in a form that is not read here, such as {self._written(opening)!r:.200}")
        self.call_format: str = found
        self._in_openings: dict[str, int] = {}
        self._in_between: dict[int, int] = {}

    def opening(self, observation: str, tools: Tools) -> list[int]:
        """Token ids of the first prompt: the tools, the first user message, the generation prompt."""
        shown = _mapped(tools, self._control.hide)
        key = json.dumps(tools)
        if key not in self._in_openings:
            self._in_openings[key] = self._control.count(self._control.encode(self._opening(_FIRST, shown)))
        return self._control.encode(self._opening(self._control.hide(observation), shown), self._in_openings[key])

    def between(self, results: Sequence[str]) -> list[int]:
        """Token ids from the end of a reply to the beginning of the next one: a message for each result."""
        number = len(results)
        if number not in self._in_between:
            self._in_between[number] = self._control.count(self._control.encode(self._between([_RESULT] * number)))
        text = self._between([self._control.hide(result) for result in results])
        return self._control.encode(text, self._in_between[number])

    def _opening(self, observation: str, tools: Any) -> str:
        return self._render([_user(observation)], add_generation_prompt=True, tools=tools)

    def _between(self, results: Sequence[str]) -> str:
        messages = [_user("?"), _assistant(_REPLY), *map(_tool, results)]
        return self._render(messages, add_generation_prompt=True, tools=_TOOLS).partition(_REPLY)[2]

    def _only_appends(self, opening: str) -> bool:
        """Whether results leave the rendering of earlier messages unchanged, and are written alike at every turn."""
        first, exchange = [_user(_FIRST)], [_assistant(_REPLY), _tool(_RESULT)]
        before = self._render([*first, exchange[0]], tools=_TOOLS)
        after = self._render([*first, *exchange], add_generation_prompt=True, tools=_TOOLS)
        later = self._render([*first, *exchange, *exchange], add_generation_prompt=True, tools=_TOOLS)
        if _REPLY not in before or after.count(_RESULT) != 1 or _FIRST not in opening:
            return False
        return (
            after.startswith(before[: before.index(_REPLY) + len(_REPLY)])
            and after.startswith(opening[: opening.index(_FIRST) + len(_FIRST)])
            and after.rpartition(_REPLY)[2] == later.rpartition(_REPLY)[2]
        )

    def _form(self, opening: str) -> str | None:
        written = self._written(opening) or ""
        # From the tag, or else from the first brace: before them stands what begins an assistant's message.
        for form, begin in zip(CALL_FORMATS, ("<tool_call>", "{"), strict=True):
            read = CallFormat().read(begin + written.partition(begin)[2]) or ()
            if read[:1] == (json.dumps(_CALL),):
                return form
        return None

    def _written(self, opening: str) -> str | None:
        """How the template writes a call of the probe, and what it writes around it; None if it writes no calls."""
        message = {**_assistant(""), "tool_calls": [{"type": "function", "id": "probe0001", "function": _CALL}]}
        try:
            text = self._render([_user(_FIRST), message], tools=_TOOLS)
        except (TemplateError, ValueError):
            return None
        return text.rpartition(_FIRST)[2]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(one, change) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_mapped(one, change) for one in value]
    return value
