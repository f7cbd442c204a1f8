"""JSON schemas of Python functions, and the check of a call's arguments against one.

A schema is made as `transformers.utils.get_json_schema` makes it, from type hints and a docstring in Google's style, so
that a model sees what it would see of the same function in TRL. It is made here because environments import neither
torch nor Transformers.
"""

import inspect
import re
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ragen_envs.errors import EnvError

Schema = dict[str, Any]

_NAMES: dict[Any, str] = {
    **{int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"},
    **{list: "array", tuple: "array", dict: "object"},
}
_TYPES: dict[str, tuple[type, ...]] = {
    **{"integer": (int,), "number": (int, float), "string": (str,), "boolean": (bool,), "null": (type(None),)},
    **{"array": (list,), "object": (dict,)},
}
# Parts of a docstring, as Transformers finds them (`utils.chat_template_utils`).
_DESCRIPTION = re.compile(r"(.*?)\s*(?:Args:|Returns:|Raises:|\Z)", re.DOTALL)
_ARGUMENTS = re.compile(r"\n\s*Args:\n(.*?)\s*(?:Returns:|Raises:|\Z)", re.DOTALL)
_RETURNS = re.compile(r"\n\s*Returns:\n\s*(.*?)\s*(?:Raises:|\Z)", re.DOTALL)
_NAME = r"(\w+)(?: \([^)\n]*\))?:"  # with a type in brackets, too
# Ends at the next name that is not indented further.
_ARGUMENT = re.compile(rf"(?:^|\n)([ \t]*){_NAME}\s*(.*?)\s*(?=\n(?!\1[ \t])[ \t]*{_NAME}|\Z)", re.DOTALL)


class ToolSignatureError(EnvError, TypeError):
    """A function cannot be a tool as it is written."""


def function_schema(function: Callable[..., Any]) -> Schema:
    """The description of a function that a chat template's `tools` takes.

    Args:
        function: Has a type hint for each argument, and a docstring that describes it and each argument under
            ``Args:``. A receiver `self` without a hint is left out.

    Returns:
        ``{"type": "function", "function": {"name", "description", "parameters", "return"}}``; the last only if the
        function has a hint for what it returns. It must not be changed: it is made once.

    Raises:
        ToolSignatureError: If it is no function, a hint or a description is missing, or a hint has no JSON type.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not isinstance(function, Hashable):
        raise ToolSignatureError(
            f"{function!r:.100} is no function with a name; write one, or describe the tool yourself with "
            "ragen_envs.Tool"
        )
    return _schema(function, name)


@lru_cache(maxsize=4096)
def _schema(function: Callable[..., Any], name: str) -> Schema:
    docstring = inspect.getdoc(function) or ""
    description = _found(_DESCRIPTION, docstring)
    if not description:
        raise ToolSignatureError(f"{name} has no docstring; a model learns from it what the tool does")
    described = _argument_texts(_found(_ARGUMENTS, docstring))
    hints = get_type_hints(function)
    properties: dict[str, Schema] = {}
    required = []
    for place, (argument, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if place == 0 and argument in ("self", "cls") and argument not in hints:
            continue
        if argument not in hints:
            raise ToolSignatureError(f"{argument} of {name} has no type hint; give it one, such as {argument}: str")
        if argument not in described:
            raise ToolSignatureError(f"the docstring of {name} does not describe {argument}; add it under Args:")
        properties[argument] = {**_of_hint(hints[argument], name), "description": described[argument]}
        if parameter.default is inspect.Parameter.empty:
            required.append(argument)
    parameters: Schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    whole: Schema = {"name": name, "description": description, "parameters": parameters}
    if "return" in hints:
        said = _found(_RETURNS, docstring)
        whole["return"] = {**_of_hint(hints["return"], name), **({"description": said} if said else {})}
    return {"type": "function", "function": whole}


def fault(value: Any, schema: Mapping[str, Any] | bool, name: str) -> str | None:
    """What is wrong with a value, in words that do not repeat the value; None if nothing is.

    Of JSON Schema, `type`, `nullable`, `enum`, `anyOf`, `items`, `properties`, `required` and `additionalProperties`
    are read. An object takes only the properties that its schema names, unless it allows others.

    Args:
        value: What `json.loads` returned.
        schema: The schema that it should meet; True for anything, and False for nothing.
        name: What to call the value.
    """
    if isinstance(schema, bool):
        return None if schema else f"{name} is not allowed"
    if value is None and schema.get("nullable"):
        return None
    if "anyOf" in schema:
        faults = [fault(value, each, name) for each in schema["anyOf"]]
        return None if None in faults else faults[0]
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if names and not any(_is(value, each) for each in names):
        return f"{name} must be {' or '.join(map(_article, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping | bool):
        return next((found for one in value if (found := fault(one, schema["items"], f"each of {name}"))), None)
    if isinstance(value, dict) and "properties" in schema:
        return _object_fault(value, schema, name)
    return None


def _object_fault(value: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> str | None:
    properties = schema["properties"]
    lacking = [each for each in schema.get("required", ()) if each not in value]
    if lacking:
        return f"{name} needs {', '.join(lacking)}"
    if not value.keys() <= properties.keys() and schema.get("additionalProperties", False) is False:
        return f"{name} takes only {', '.join(properties)}" if properties else f"{name} takes no arguments"
    for each, one in value.items():
        if each in properties and (found := fault(one, properties[each], f"{each} of {name}")):
            return found
    return None


def _is(value: Any, name: str) -> bool:
    known = _TYPES.get(name)
    if known is None:
        return True
    return isinstance(value, known) and (name == "boolean" or not isinstance(value, bool))


def _article(name: str) -> str:
    return {"null": "null"}.get(name, f"{'an' if name[0] in 'aio' else 'a'} {name}")


def _found(part: re.Pattern[str], docstring: str) -> str:
    """A part of a docstring; "" if it has none."""
    found = part.search(docstring)
    return found[1].rstrip() if found else ""


def _argument_texts(section: str) -> dict[str, str]:
    """Name and description of each argument; a description may go on in lines that are indented further.

    Another section may follow. Its title then counts as the name of an argument, for which nobody asks.
    """
    text = "\n".join(line for line in section.splitlines() if line.strip())
    return {found[2]: re.sub(r"\s*\n\s*", " ", found[3].strip()) for found in _ARGUMENT.finditer(text)}


def _of_hint(hint: Any, function: str) -> Schema:
    """The schema of a type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if origin is None and hint in _NAMES:
        return {"type": _NAMES[hint]}
    if origin is Union or origin is types.UnionType:
        return _of_union(arguments, function)
    if origin is Literal and all(type(value) in _NAMES for value in arguments):
        kinds = list(dict.fromkeys(_NAMES[type(value)] for value in arguments))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(arguments)}
    if origin in (list, dict) and not arguments:  # typing.List
        return {"type": _NAMES[origin]}
    if origin is list:
        return {"type": "array", "items": _of_hint(arguments[0], function)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_hint(arguments[1], function)}
    raise ToolSignatureError(
        f"the hint {hint} of {function} has no JSON type; use int, float, str, bool, list, dict, Literal or a union of "
        "them, or describe the tool yourself with ragen_envs.Tool"
    )


def _of_union(arguments: Sequence[Any], function: str) -> Schema:
    """A single type, a list of plain types, or `anyOf`; None among them makes it nullable."""
    kinds = [_of_hint(each, function) for each in arguments if each is not type(None)]
    nullable = {"nullable": True} if type(None) in arguments else {}
    if len(kinds) == 1:
        return {**kinds[0], **nullable}
    if all(kind.keys() == {"type"} for kind in kinds):
        names = sorted({str(kind["type"]) for kind in kinds})
        return {"type": names[0] if len(names) == 1 else names, **nullable}
    return {"anyOf": kinds, **nullable}
