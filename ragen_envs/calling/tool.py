"""One tool: its name, its description, the schema of its arguments, and the function that answers a call.

A call is the JSON text ``{"name": "find_customer", "arguments": {"name": "Anna Bell"}}``. It is the primitive action of
an environment with tools, whatever form a chat template gives it. ``{"answer": "Done."}`` is the other one: words
instead of a call.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragen_envs.calling.schema import Schema, fault, function_schema


class ToolError(Exception):
    """Raised by a tool that cannot do what it was asked; its message is shown to the model."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: What it is called by.
        description: What it does.
        parameters: JSON schema of its arguments, of type "object".
        run: Called with the arguments by name; what it returns is shown as text (JSON, unless it is a string).
        returns: JSON schema of what it returns, if it is known.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Any]
    returns: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, function: "Callable[..., Any] | Tool") -> "Tool":
        """A function as a tool; see `function_schema`. A tool is returned as it is.

        Raises:
            ToolSignatureError: If the function's hints or docstring leave something open.

        Example:
            >>> def add(a: int, b: int) -> int:
            ...     '''Add two numbers.
            ...
            ...     Args:
            ...         a: The first.
            ...         b: The second.
            ...     '''
            ...     return a + b
            >>> Tool.of(add).signature
            'add(a: integer, b: integer)'
        """
        if isinstance(function, Tool):
            return function
        plain = getattr(function, "__func__", function)  # one schema for the method of all instances
        found = function_schema(plain)["function"]
        return cls(found["name"], found["description"], found["parameters"], function, found.get("return"))

    @property
    def schema(self) -> Schema:
        """The description that a chat template's `tools` takes."""
        known = {} if self.returns is None else {"return": dict(self.returns)}
        whole = {"name": self.name, "description": self.description, "parameters": dict(self.parameters), **known}
        return {"type": "function", "function": whole}

    @property
    def signature(self) -> str:
        """Name, and names and types of the arguments; those that may be left out have a question mark."""
        required = self.parameters.get("required", ())
        arguments = [
            f"{name}{'' if name in required else '?'}: {_kind(schema)}"
            for name, schema in self.parameters.get("properties", {}).items()
        ]
        return f"{self.name}({', '.join(arguments)})"

    def fault(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments of a call; None if nothing is."""
        return fault(arguments, self.parameters, self.name)


@dataclass(frozen=True)
class Call:
    """A call of a tool: what `read_action` finds in an action."""

    name: str
    arguments: Mapping[str, Any]


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """The action that calls a tool."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def write_answer(text: str) -> str:
    """The action that answers in words."""
    return json.dumps({"answer": text}, ensure_ascii=False)


def read_action(text: str) -> Call | str | None:
    """What an action says: a call, an answer in words, or None if it is neither.

    Args:
        text: Any string.
    """
    found = read_object(text)
    if found is None:
        return None
    if found.keys() == {"answer"} and isinstance(found["answer"], str):
        return found["answer"]
    return call_in(found)


def call_in(found: Mapping[str, Any]) -> Call | None:
    """The call that a JSON object describes, with `arguments` or, as Llama 3 names them, `parameters`."""
    for key in ("arguments", "parameters"):
        if found.keys() <= {"name", key} and isinstance(found.get("name"), str):
            arguments = found.get(key, {})
            return Call(found["name"], arguments) if isinstance(arguments, dict) else None
    return None


def read_object(text: str) -> dict[str, Any] | None:
    r"""The JSON object that a text is; None if it is none. No string raises an exception.

    One that holds half of a surrogate pair, as in ``{"name": "\ud83d"}``, is none either: it is no text that could be
    sent to a server, written to a file or tokenised.
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def foreign_tool(
    name: str, description: str | None, schema: Mapping[str, Any] | None, run: Callable[..., Any]
) -> Tool:
    """A tool that a server describes. Servers in Go write ``null`` for lists and maps that are empty; those go.

    Args:
        name: What it is called by.
        description: What it does; the name if there is none.
        schema: JSON schema of its arguments.
        run: Called with the arguments by name.
    """
    return Tool(name, description or name, {"type": "object", "properties": {}, **_without_nulls(schema or {})}, run)


def _without_nulls(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: each for key, each in schema.items() if each is not None or key in ("default", "const")}
    nested = {key: [_without_nulls(one) for one in each] for key, each in kept.items() if isinstance(each, list)}
    return {**{key: _without_nulls(each) for key, each in kept.items()}, **nested}


def _kind(schema: Mapping[str, Any] | bool) -> str:
    if isinstance(schema, bool):
        return "any" if schema else "none"
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    found = schema.get("type", "any")
    return found if isinstance(found, str) else "|".join(found)
