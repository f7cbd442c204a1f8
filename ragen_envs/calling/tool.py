"""One tool: its name, its description, the JSON schema of its arguments, and the function that answers a call.

A call is the JSON text ``{"name": "find_customer", "arguments": {"name": "Anna Bell"}}``: the primitive action of an
environment with tools, whatever form a chat template gives it. ``{"answer": "Done."}`` is the other one: words instead
of a call.

A function's schema is made as `transformers.utils.get_json_schema` makes it, so a model sees what it would see of the
same function in TRL; it is made here because environments import neither torch nor Transformers.
"""

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from textwrap import dedent
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ragen_envs.errors import EnvError

Schema = dict[str, Any]

_KINDS: dict[Any, str] = {
    **{int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"},
    **{list: "array", tuple: "array", dict: "object"},
}
# Keywords of a plain schema of an object; with any other one it may take more than its properties name.
_PLAIN = {"type", "properties", "required", "additionalProperties", "nullable", "default", "examples"}
_PLAIN |= {"title", "description", "$schema", "$id", "$defs", "definitions"}
_SECTION = re.compile(r"(?:^|\n)\s*(Args|Returns|Raises):")
_TYPE = r"(?: \([^)\n]*\))?:"  # in brackets after an argument's name, and left out
_ARGUMENT = re.compile(rf"^(\w+){_TYPE}(.*(?:\n(?!\w+{_TYPE}).*)*)", re.MULTILINE)


class ToolError(Exception):
    """Raised by a tool that cannot do what it was asked; its message is shown to the model."""


class ToolSignatureError(EnvError, TypeError):
    """A function cannot be a tool as it is written."""


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
        """A function as a tool. A tool is returned as it is.

        Args:
            function: Has a type hint for each argument, and a docstring in Google's style that describes it and each
                argument under ``Args:``. A receiver `self` without a hint is left out. It may be asynchronous.

        Raises:
            ToolSignatureError: If it is no function, or a generator, if a hint or a description is missing, a hint has
                no JSON type, or an argument cannot be given by its name.
        """
        if isinstance(function, Tool):
            return function
        plain = getattr(function, "__func__", function)  # one schema for the method of all instances
        if not isinstance(getattr(plain, "__name__", None), str) or not isinstance(plain, Hashable):
            raise ToolSignatureError(f"{plain!r:.100} is no function with a name; write one, or make a ragen_envs.Tool")
        return replace(_described(plain), run=function)

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
        """What is certainly wrong with the arguments of a call; None if nothing is. See `faults`.

        No other arguments are taken than those of a plain schema, unless it says so.
        """
        plain = "properties" in self.parameters and self.parameters.keys() <= _PLAIN
        schema = {"additionalProperties": False, **self.parameters} if plain else self.parameters
        return next(faults(arguments, schema, self.name), None)


@lru_cache(maxsize=4096)
def _described(function: Callable[..., Any]) -> Tool:
    name, written = function.__name__, inspect.unwrap(function)
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        raise ToolSignatureError(f"{name} is a generator, which a call does not run; return the whole result")
    description, *rest = _SECTION.split(inspect.getdoc(function) or "")
    if not description.strip():
        raise ToolSignatureError(f"{name} has no docstring; a model learns from it what the tool does")
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    listed = re.split(r"\n(?=\S)", sections.get("Args", ""))[0]  # up to a section of another title
    texts = dict(_ARGUMENT.findall(dedent(listed.strip("\n"))))
    hints, properties, required = get_type_hints(function), {}, []
    for place, (argument, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if place == 0 and argument in ("self", "cls") and argument not in hints:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolSignatureError(f"{parameter} of {name} cannot be given by its name, as a call gives arguments")
        if argument not in hints:
            raise ToolSignatureError(f"{argument} of {name} has no type hint; give it one, such as {argument}: str")
        if argument not in texts:
            raise ToolSignatureError(f"the docstring of {name} does not describe {argument}; add it under Args:")
        text = re.sub(r"\s*\n\s*", " ", texts[argument].strip())
        properties[argument] = {**schema_of(hints[argument], name), "description": text}
        if parameter.default is inspect.Parameter.empty:
            required.append(argument)
    parameters = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    said = {"description": sections["Returns"].strip()} if "Returns" in sections else {}
    returns = {**schema_of(hints["return"], name), **said} if "return" in hints else None
    return Tool(name, description.strip(), parameters, function, returns)


def schema_of(hint: Any, function: str) -> Schema:
    """The JSON schema of a type hint; an error names the function that has it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if (bare := origin if origin in (list, dict) and not arguments else hint) in _KINDS:
        return {"type": _KINDS[bare]}
    if origin in (Union, types.UnionType):
        nullable = {"nullable": True} if type(None) in arguments else {}
        kinds = [schema_of(each, function) for each in arguments if each is not type(None)]
        if len(kinds) > 1 and all(kind.keys() == {"type"} for kind in kinds):
            kinds = [{"type": _one_or_all(sorted({str(kind["type"]) for kind in kinds}))}]
        return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), **nullable}
    if origin is Literal and all(type(value) in _KINDS for value in arguments):
        names = list(dict.fromkeys(_KINDS[type(value)] for value in arguments))
        return {"type": _one_or_all(names), "enum": list(arguments)}
    if origin in (list, dict):
        inner = "items" if origin is list else "additionalProperties"
        return {"type": _KINDS[origin], inner: schema_of(arguments[-1], function)}
    raise ToolSignatureError(
        f"the hint {hint} of {function} has no JSON type; use int, float, str, bool, list, dict, Literal or a union of "
        "them, or describe the tool yourself with ragen_envs.Tool"
    )


def _one_or_all(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _kind(schema: Mapping[str, Any] | bool) -> str:
    if isinstance(schema, bool):
        return "any" if schema else "none"
    found = schema.get("enum") or schema.get("type", "any")
    return found if isinstance(found, str) else "|".join(map(str, found))


def faults(value: Any, schema: Mapping[str, Any] | bool, name: str) -> Iterator[str]:
    """What is certainly wrong with a value of JSON, in words that do not repeat it but call it `name`.

    Read are `type`, `nullable`, `enum`, `anyOf`, `oneOf` and `allOf`, `items`, `properties`, `required` and
    `additionalProperties`. Other keywords could only forbid more; their judgement is left to the tool.
    """
    if schema is False:
        yield f"{name} is not allowed"
    if isinstance(schema, bool) or (value is None and schema.get("nullable")):
        return
    wanted = schema.get("type") or []
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{name} must be {' or '.join(map(_article, kinds))}"
    allowed = schema.get("enum", [value])
    if not any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed):  # True is 1
        yield f"{name} must be one of {', '.join(map(str, allowed))}"
    for keyword in ("anyOf", "oneOf", "allOf"):
        found = [next(faults(value, each, name), None) for each in schema.get(keyword, ())]
        if any(found) and (keyword == "allOf" or all(found)):
            yield next(filter(None, found))
    if isinstance(value, list) and "prefixItems" not in schema and isinstance(schema.get("items"), Mapping | bool):
        for each in value:
            yield from faults(each, schema["items"], f"each of {name}")
    if not isinstance(value, dict):
        return
    if lacking := [each for each in schema.get("required", ()) if each not in value]:
        yield f"{name} needs {', '.join(lacking)}"
    properties = schema.get("properties", {})
    others = "patternProperties" in schema or schema.get("additionalProperties", True)
    if others is False and not value.keys() <= properties.keys():
        yield f"{name} takes only {', '.join(properties)}" if properties else f"{name} takes no arguments"
    for key, each in value.items():
        yield from faults(each, properties.get(key, others), f"{key} of {name}")


def _is(value: Any, kind: str) -> bool:
    """Whether a value of JSON is of a type; every value is of a type that JSON does not know."""
    found = _KINDS[type(value)]
    if (found, kind) == ("number", "integer"):
        return math.isfinite(value) and value == int(value)  # JSON Schema's 3.0 is an integer
    return found == kind or (found, kind) == ("integer", "number") or kind not in _KINDS.values()


def _article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


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
    r"""What an action says: a call, an answer in words, or None if it is neither. No string raises an exception.

    A call has `arguments` or, as Llama 3 names them, `parameters`. JSON with half of a surrogate pair, as in
    ``{"name": "\ud83d"}``, is neither: it is no text that could be sent to a server, written to a file or tokenised.
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    match found:
        case {"answer": str(answer)} if len(found) == 1:
            return answer
        case {"name": str(name), "arguments": dict(arguments)} | {"name": str(name), "parameters": dict(arguments)}:
            return Call(name, arguments) if len(found) == 2 else None
        case {"name": str(name)} if len(found) == 1:
            return Call(name, {})
    return None
