"""Schemas of functions are those of Transformers, and what is wrong with arguments is said."""

import functools
import typing
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils import get_json_schema

from ragen_envs.calling.schema import ToolSignatureError, fault, function_schema
from ragen_envs.calling.tool import Tool


def plain(name: str, count: int = 1) -> str:
    """Place an order.

    It takes effect at once.

    Args:
        name: Whose order
            it is.
        count: How many.

    Returns:
        The order.
    """
    return name * count


def everything(
    a: float, b: bool, c: list[str], d: dict[str, int], e: str | None, f: int | str, g: Literal["x", "y"], h: Any = None
) -> None:
    """Take one argument of each kind.

    Args:
        a: One.
        b: Two.
        c: Three.
        d: Four.
        e: Five.
        f: Six.
        g: Seven.
        h: Eight.
    """


def unsaid(rows: typing.List, names: typing.Dict) -> None:  # noqa: UP006
    """Take what may hold anything.

    Args:
        rows: The rows.
        names: The names.
    """


def nested(rows: list[list[int]], either: list[int] | dict[str, str] | None = None) -> list[str]:
    """Take nested values.

    Args:
        rows: The rows.
        either: One or the other.
    """
    return [str(rows), str(either)]


def bare() -> str:
    """Do nothing."""
    return ""


def noted(room: str, hour: int) -> str:
    """Book a room.

    Example:
        noted("blue", 9) books the blue one.

    Args:
        room: Its name.

        hour: When: in the morning,
            Default: nine, or the next free hour.

    Note:
        Rooms: are free from 9 on.

    Returns:
        The number.

    Example:
        noted("red", 9) does not.
    """
    return room * hour


class Shop:
    """Has a method."""

    def open(self, hour: int) -> bool:
        """Open the shop.

        Args:
            hour: When.
        """
        return hour > 8


FUNCTIONS = [plain, everything, unsaid, nested, bare, noted, Shop.open]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_a_schema_is_that_of_transformers(function: Any) -> None:
    assert function_schema(function) == get_json_schema(function)


def test_types_in_brackets_are_read_too() -> None:
    def put(key: str, number: int) -> None:
        """Put it there.

        Args:
            key (str): Where.
            number (int, at least 1): How many.
        """

    properties = function_schema(put)["function"]["parameters"]["properties"]
    assert [each["description"] for each in properties.values()] == ["Where.", "How many."]


def test_what_a_schema_says() -> None:
    assert function_schema(plain)["function"] == {
        "name": "plain",
        "description": "Place an order.\n\nIt takes effect at once.",
        "parameters": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Whose order it is."},
                "count": {"type": "integer", "description": "How many."},
            },
            "required": ["name"],
        },
        "return": {"type": "string", "description": "The order."},
    }


def without_hint(name) -> str:  # type: ignore[no-untyped-def]
    """Has no hint.

    Args:
        name: A name.
    """
    return str(name)


def without_description(name: str) -> str:
    """Describes nothing."""
    return name


def of_bytes(name: bytes) -> str:
    """Has a hint without a JSON type.

    Args:
        name: A name.
    """
    return str(name)


class Called:
    def __call__(self, name: str) -> str:
        return name


@dataclass
class Lookup(Called):
    table: dict[str, str]


def of_byte_choices(name: Literal[b"a"]) -> str:
    """Has a hint of values without a JSON type.

    Args:
        name: A name.
    """
    return str(name)


def silent(name: str) -> str:  # noqa: D103
    return name


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (without_hint, "name of without_hint has no type hint"),
        (without_description, "docstring of without_description does not describe name"),
        (of_bytes, "bytes.*of of_bytes has no JSON type; use int"),
        (silent, "silent has no docstring"),
        (functools.partial(plain, "Anna"), r"functools.partial\(.* is no function with a name; write one, or"),
        (Called(), "Called object.* is no function with a name"),
        (Lookup({}), r"Lookup\(table={}\) is no function with a name"),
        (of_byte_choices, "Literal.*of of_byte_choices has no JSON type; use int"),
    ],
)
def test_a_function_that_says_too_little_is_refused(function: Any, said: str) -> None:
    with pytest.raises(ToolSignatureError, match=said):
        Tool.of(function)
    with pytest.raises(ToolSignatureError, match=said):
        function_schema(function)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "Anna"}, None),
        ({"name": "Anna", "count": 2}, None),
        ({}, "order needs name"),
        ({"count": 2}, "order needs name"),
        ({"name": 3}, "name of order must be a string"),
        ({"name": "Anna", "count": "2"}, "count of order must be an integer"),
        ({"name": "Anna", "count": True}, "count of order must be an integer"),
        ({"name": "Anna", "count": 2.5}, "count of order must be an integer"),
        ({"name": "Anna", "secret": "x"}, "order takes only name, count"),
    ],
)
def test_what_is_wrong_with_arguments_is_said(arguments: dict[str, Any], said: str | None) -> None:
    assert fault(arguments, function_schema(plain)["function"]["parameters"], "order") == said


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (None, {"type": "string", "nullable": True}, None),
        (None, {"type": "string"}, "it must be a string"),
        (1, {"type": ["integer", "string"]}, None),
        ([], {"type": ["integer", "string"]}, "it must be an integer or a string"),
        ("z", {"type": "string", "enum": ["x", "y"]}, "it must be one of x, y"),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, "each of it must be an integer"),
        (1.5, {"anyOf": [{"type": "integer"}, {"type": "number"}]}, None),
        ("a", {"anyOf": [{"type": "integer"}, {"type": "number"}]}, "it must be an integer"),
        ({"a": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}, None),
        ("a", {"$ref": "#/$defs/Name"}, None),
        ({}, {"type": "object", "properties": {}}, None),
        ({"a": 1}, {"type": "object", "properties": {}}, "it takes no arguments"),
        ({"a": 1}, {"type": "object", "properties": {}, "additionalProperties": {}}, None),
        ({"a": 1}, {"type": "object", "properties": {"a": True}}, None),
        ({"a": 1}, {"type": "object", "properties": {"a": False}}, "a of it is not allowed"),
        ([1], {"type": "array", "items": False}, "each of it is not allowed"),
        ([], {"type": "array", "items": False}, None),
        ("a", {"anyOf": [{"type": "integer"}, True]}, None),
        ("a", {"anyOf": [False, {"type": "integer"}]}, "it is not allowed"),
    ],
)
def test_keywords_of_json_schema(value: Any, schema: dict[str, Any], said: str | None) -> None:
    assert fault(value, schema, "it") == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON)
@settings(max_examples=100, deadline=None)
def test_no_value_raises_an_exception(value: Any) -> None:
    for function in (plain, everything, nested):
        found = fault(value, function_schema(function)["function"]["parameters"], "it")
        assert found is None or isinstance(found, str)
