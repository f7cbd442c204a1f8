"""JSON schemas of Python functions, and the check of a call's arguments against one.

A schema is made as `transformers.utils.get_json_schema` makes it, from type hints and a docstring in Google's style, so
a model sees what it would see of the same function in TRL. It is made here because environments import neither torch
nor Transformers.
"""

import inspect
import re
import types
from collections.abc import Callable, Hashable, Mapping
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
# Keywords that leave an object as closed as its properties; with any other one it may take more than they name.
_PLAIN = {"type", "properties", "required", "additionalProperties", "nullable", "default", "examples"}
_PLAIN |= {"title", "description", "$schema", "$id", "$defs", "definitions"}
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
            ``Args:``. A receiver `self` without a hint is left out. It may be asynchronous.

    Returns:
        ``{"type": "function", "function": {"name", "description", "parameters", "return"}}``; the last only if the
        function has a hint for what it returns. It must not be changed: it is made once.

    Raises:
        ToolSignatureError: If it is no function, or a generator, if a hint or a description is missing, a hint has no
            JSON type, or an argument cannot be given by its name.
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
    written = inspect.unwrap(function)
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        raise ToolSignatureError(f"{name} is a generator, which a call does not run; return the whole result")
    docstring = inspect.getdoc(function) or ""
    description = _found(_DESCRIPTION, docstring)
    if not description:
        raise ToolSignatureError(f"{name} has no docstring; a model learns from it what the tool does")
    # Another section may follow. Its title then counts as the name of an argument, for which nobody asks.
    section = "\n".join(line for line in _found(_ARGUMENTS, docstring).splitlines() if line.strip())
    described = {found[2]: re.sub(r"\s*\n\s*", " ", found[3].strip()) for found in _ARGUMENT.finditer(section)}
    hints = get_type_hints(function)
    properties: dict[str, Schema] = {}
    required = []
    for place, (argument, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if place == 0 and argument in ("self", "cls") and argument not in hints:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolSignatureError(f"{parameter} of {name} cannot be given by its name, as a call gives arguments")
        if argument not in hints:
            raise ToolSignatureError(f"{argument} of {name} has no type hint; give it one, such as {argument}: str")
        if argument not in described:
            raise ToolSignatureError(f"the docstring of {name} does not describe {argument}; add it under Args:")
        properties[argument] = {**schema_of(hints[argument], name), "description": described[argument]}
        if parameter.default is inspect.Parameter.empty:
            required.append(argument)
    parameters: Schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    whole: Schema = {"name": name, "description": description, "parameters": parameters}
    if "return" in hints:
        said = _found(_RETURNS, docstring)
        whole["return"] = {**schema_of(hints["return"], name), **({"description": said} if said else {})}
    return {"type": "function", "function": whole}


def _found(part: re.Pattern[str], docstring: str) -> str:
    """A part of a docstring; "" if it has none."""
    found = part.search(docstring)
    return found[1].rstrip() if found else ""


def schema_of(hint: Any, function: str) -> Schema:
    """The schema of a type hint of a function."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if origin is None and hint in _NAMES:
        return {"type": _NAMES[hint]}
    if origin is Union or origin is types.UnionType:
        nullable = {"nullable": True} if type(None) in arguments else {}
        kinds = [schema_of(each, function) for each in arguments if each is not type(None)]
        if len(kinds) == 1:
            return {**kinds[0], **nullable}
        if all(kind.keys() == {"type"} for kind in kinds):
            names = sorted({str(kind["type"]) for kind in kinds})
            return {"type": names[0] if len(names) == 1 else names, **nullable}
        return {"anyOf": kinds, **nullable}
    if origin is Literal and all(type(value) in _NAMES for value in arguments):
        names = list(dict.fromkeys(_NAMES[type(value)] for value in arguments))
        return {"type": names[0] if len(names) == 1 else names, "enum": list(arguments)}
    if origin in (list, dict) and not arguments:  # typing.List
        return {"type": _NAMES[origin]}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], function)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], function)}
    raise ToolSignatureError(
        f"the hint {hint} of {function} has no JSON type; use int, float, str, bool, list, dict, Literal or a union of "
        "them, or describe the tool yourself with ragen_envs.Tool"
    )


def fault(value: Any, schema: Mapping[str, Any] | bool, name: str, closed: bool = True) -> str | None:
    """What is certainly wrong with a value, in words that do not repeat it; None if nothing is.

    Read are `type`, `nullable`, `enum`, `anyOf`, `oneOf` and `allOf`, `items`, `properties`, `required` and
    `additionalProperties`. Other keywords could only forbid more; their judgement is left to the tool.

    Args:
        value: What `json.loads` returned.
        schema: The schema that it should meet; True for anything, and False for nothing.
        name: What to call the value.
        closed: Whether an object takes only the properties that its schema names, unless the schema says otherwise or
            has a keyword that may name others.
    """
    if isinstance(schema, bool):
        return None if schema else f"{name} is not allowed"
    if value is None and schema.get("nullable"):
        return None
    wanted = schema.get("type") or ()
    kinds = [wanted] if isinstance(wanted, str) else list(wanted)
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{name} must be {' or '.join(map(_article, kinds))}"
    if "enum" in schema and not any(value == each and _is_flag(value) == _is_flag(each) for each in schema["enum"]):
        return f"{name} must be one of {', '.join(map(str, schema['enum']))}"
    for keyword in ("anyOf", "oneOf", "allOf"):
        faults = [fault(value, each, name, closed=False) for each in schema.get(keyword, ())]
        wrong = [found for found in faults if found is not None]
        if wrong and (keyword == "allOf" or len(wrong) == len(faults)):
            return wrong[0]
    if isinstance(value, list) and "prefixItems" not in schema and isinstance(schema.get("items"), Mapping | bool):
        return next((found for one in value if (found := fault(one, schema["items"], f"each of {name}", False))), None)
    if not isinstance(value, dict):
        return None
    lacking = [each for each in schema.get("required", ()) if each not in value]
    if lacking:
        return f"{name} needs {', '.join(lacking)}"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", not (closed and "properties" in schema and schema.keys() <= _PLAIN))
    if "patternProperties" in schema:
        others = True
    if others is False and not value.keys() <= properties.keys():
        return f"{name} takes only {', '.join(properties)}" if properties else f"{name} takes no arguments"
    checks = (fault(one, properties.get(each, others), f"{each} of {name}", False) for each, one in value.items())
    return next((found for found in checks if found), None)


def _is(value: Any, kind: str) -> bool:
    return kind not in _TYPES or (isinstance(value, _TYPES[kind]) and (kind == "boolean" or not _is_flag(value)))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)  # which Python takes for 0 and 1


def _article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aio' else 'a'} {kind}"
