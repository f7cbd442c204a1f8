"""Tool calls: schemas, what a reply says, turns, judges."""

import asyncio
import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils import get_json_schema

from ragen_envs import ToolEnv, ToolTurns
from ragen_envs.calling.env import as_text
from ragen_envs.calling.mcp import content_text, foreign_tool
from ragen_envs.calling.tool import Tool, read_action, write_answer, write_call
from ragen_envs.calling.turns import CALL_FORMATS, CallFormat
from tests.support.ragen_envs.notes import Notes, calls


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
    a: list[list[float]], b: list[int] | dict[str, bool] | None, c: int | str, d: Literal["x", "y"], e: Any = None
) -> list[str]:
    """Take one argument of each kind.

    Args:
        a: One.
        b: Two.
        c: Three.
        d: Four.
        e: Five.
    """
    raise NotImplementedError


@pytest.mark.parametrize("function", [plain, everything, Notes.secret, Notes.fail], ids=lambda one: one.__name__)
def test_a_schema_is_that_of_transformers(function: Any) -> None:
    assert Tool.of(function).schema == get_json_schema(function)


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (None, {"type": "string", "nullable": True}, None),
        ([], {"type": ["integer", "string"]}, "it must be an integer or a string"),
        ("z", {"type": "string", "enum": ["x", "y"]}, "it must be one of x, y"),
        (3.0, {"type": "integer"}, None),
        (3.5, {"type": "integer"}, "it must be an integer"),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, "each of it must be an integer"),
        ("a", {"anyOf": [{"type": "integer"}, {"type": "number"}]}, "it must be an integer"),
        ({"a": 1}, {"type": "object", "properties": {}}, "it takes no arguments"),
        ({"a": 1}, {"type": "object", "properties": {"a": False}}, "a of it is not allowed"),
        (True, {"enum": [1, "x"]}, "it must be one of 1, x"),  # regression: True is 1 in Python
        ({"a": "x"}, {"type": "object", "additionalProperties": {"type": "integer"}}, "a of it must be an integer"),
        # Regression: properties beside composed schemas closed the object, and the composed ones were not read.
        ({"b": 1}, {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]}, None),
        ({"a": 1, "b": 1}, {"properties": {"a": {}}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, None),
        ({"a": 1}, {"properties": {"a": {}}, "oneOf": [{"required": ["b"]}, {"required": ["c"]}]}, "it needs b"),
        ({"a": 1}, {"properties": {"a": {}}, "allOf": [{"required": ["a"]}, {"required": ["c"]}]}, "it needs c"),
        ({"x_1": 1}, {"properties": {}, "patternProperties": {"^x_": {}}, "additionalProperties": False}, None),
        ({"b": 1}, {"properties": {"a": {}}, "$ref": "#/$defs/b"}, None),
        (["a", 1], {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, None),
        ({"a": {"c": 1}}, {"properties": {"a": {"properties": {"b": {}}}}}, None),
    ],
)
def test_keywords_of_json_schema(value: Any, schema: dict[str, Any], said: str | None) -> None:
    assert Tool("it", "", schema, str).fault(value) == said


def test_null_for_lists_and_maps_is_none_of_them() -> None:
    """Regression: a server in Go lost all its tools."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": None}}, "required": None}
    tool = foreign_tool("find", None, schema, str)
    assert tool.signature == "find(a?: string)" and tool.fault({"a": "x"}) is None
    assert tool.fault({"a": 1}) == "a of find must be a string"
    for nothing in (None, {"type": "object", "properties": None}):
        assert foreign_tool("find", None, nothing, str).fault({}) is None


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        ({"a": [1, None, 2.5, True]}, '{"a": [1, null, 2.5, true]}'),
        ({datetime.date(2026, 1, 2): decimal.Decimal("1.50")}, '{"2026-01-02": "1.50"}'),
        ((np.int64(3), np.array([1.5, 2.0]), np.bool_(True)), "[3, [1.5, 2.0], true]"),
        ({"b", "a"}, '["a", "b"]'),
    ],
)
def test_a_result_of_any_kind_is_text(result: Any, text: str) -> None:
    assert as_text(result) == text


def test_what_is_still_to_be_computed_is_no_result() -> None:
    for result in (len, iter([1]), [iter([1])], {"a": len}):
        with pytest.raises(TypeError, match="which is no result yet"):
            as_text(result)


TEXT = {"type": "text", "text": "A"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [TEXT, TEXT], "structuredContent": {"a": 1}}, "A\nA"),
        ({"content": None, "structuredContent": [1]}, "[1]"),
        ({"content": [{"type": "text", "text": ""}], "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": []}, ""),
        ({"content": [{"type": "resource", "resource": {"uri": "f:/a", "text": "B"}}]}, "[resource f:/a]\nB"),
        ({"content": [{"type": "resource", "resource": {"uri": "f:/a", "blob": "AA=="}}]}, "[resource f:/a, binary]"),
        ({"content": [{"type": "resource_link", "uri": "f:/a", "name": "n", "title": None}]}, "[link f:/a: n]"),
        ({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}, TEXT]}, "[image, image/png]\nA"),
        ({"content": [{"type": "new", "a": 1}]}, '{"type": "new", "a": 1}'),
    ],
)
def test_every_form_of_a_servers_result_reaches_the_model(result: Any, text: str) -> None:
    assert content_text(result) == text


ADD = write_call("add", {"a": 1})
TAGGED = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
BARE = '{"name": "add", "parameters": {"a": 1}}'


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        (f"I add.\n{TAGGED}\n{TAGGED} done", (ADD, ADD)),
        (f"{TAGGED}<tool_call>{{bad</tool_call>", (ADD, "{bad")),
        (TAGGED.removesuffix("</tool_call>"), ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n',)),
        ("<tool_call></tool_call>", ("",)),
        (f"{BARE}; {BARE}\n{BARE}", (ADD, ADD, ADD)),
        (f"{BARE} and so on", (ADD, "and so on")),
        (deep := '{"a":' * 50_000, (deep,)),
        ('{"a": 1}', ('{"a": 1}',)),
        ("It is done.", (write_answer("It is done."),)),
        ('{"name": "now"}', (write_call("now", {}),)),
    ],
)
def test_what_a_reply_says(reply: str, actions: tuple[str, ...]) -> None:
    for form in CALL_FORMATS:
        assert CallFormat(form=form).read(reply) == actions


def test_other_json_is_no_action() -> None:
    for text in (
        *("", "1", "[]", "null", '"name"', "{}", '{"name": 1, "arguments": {}}', '{"name": "a", "arguments": []}'),
        *('{"name": "a", "arguments": "{}"}', '{"name": "a", "arguments": {}, "more": 1}', '{"answer": 1}'),
        *("[" * 100_000, '{"a":' * 50_000, "9" * 100_000, '{"name": "a", "arguments": {}} x'),
        '{"name": "a", "arguments": {}, "parameters": {}}',
        *(r'{"name": "\ud83d"}', r'{"name": "a", "arguments": {"\udc00": [1]}}', r'{"answer": "\ud83d \ude00"}'),
    ):
        assert read_action(text) is None, text[:80]


ARGUMENTS = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.lists(st.integers(), max_size=3),
    max_size=3,
)
CALLS = st.lists(st.builds(write_call, st.text(min_size=1, max_size=8), ARGUMENTS), min_size=1, max_size=4)


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("form", CALL_FORMATS)
@given(actions=CALLS)
@settings(max_examples=30, deadline=None)
def test_reading_inverts_writing(actions: list[str], form: str, think: bool) -> None:
    shape = CallFormat(think, form)
    reply = shape.write(actions, "so")
    assert reply.startswith("<think>so</think>" if think else ("<tool_call>" if form == "tags" else '{"name"'))
    assert shape.read(reply) == tuple(actions)


def turns(env: gymnasium.Env[str, str] | None = None, **kwargs: Any) -> ToolTurns:
    """An environment after a reset."""
    made = ToolTurns(env or Notes(), **kwargs)
    made.reset(seed=3)
    return made


def test_an_episode_from_the_first_message_to_the_reward() -> None:
    env = ToolTurns(Notes())
    message, info = env.reset(seed=3)
    assert message == "Keep the notes.\nWrite the secret number."
    assert info["tool_results"] == () and not info["success"]
    message, reward, terminated, truncated, info = env.step(calls(("secret", {})))
    number = env.game.number
    assert message == f'{{"number": {number}}}'
    assert (reward, terminated, truncated, info["tool_results"]) == (0.0, False, False, (message,))
    message, reward, terminated, truncated, info = env.step(calls(("write", {"text": str(number)})))
    assert (message, reward, terminated, truncated, info["success"]) == ("written", 1.0, True, False, True)
    again = env.step(calls(("read", {})))
    assert again[:4] == ("written", 0.0, True, False) and again[4]["tool_results"] == ()


A, READ = ("write", {"text": "a"}), ("read", {})
NO_JSON = 'Error: the call is not JSON of the form {"name": ..., "arguments": {...}}'
NO_TOOL = "Error: there is no such tool; the tools are write, secret, read, fail"
SECOND = "Error: the last call was not made: an episode may have at most 1 call"
OTHERS = "Error: the last 2 calls were not made: a turn may have at most 2 calls"


@pytest.mark.parametrize(
    ("limits", "reply", "results", "notes"),
    [
        ({}, f"I write.\n{calls(A, ('write', {'text': 'b', 'times': 2}), READ)}", "written|written|a\nb\nb", "abb"),
        ({}, calls(("fail", {"politely": True}), READ), "Error: not today|", ""),
        ({}, calls(("fail", {"politely": False})), "Error: ZeroDivisionError: by zero", ""),
        # Wrong calls, which have a penalty.
        ({}, "<tool_call>{</tool_call>", NO_JSON, None),
        ({}, calls(("erase", {})), NO_TOOL, None),
        ({}, calls(("write", {})), "Error: write needs text", None),
        ({}, calls(("write", {"text": 1})), "Error: text of write must be a string", None),
        ({}, calls(("read", {"page": 1})), "Error: read takes no arguments", None),
        # Regression: the limit of an episode was called that of a turn.
        ({"max_actions_per_turn": 2}, calls(A, A, A, A), f"written|written|{OTHERS}", "aa"),
        ({"max_actions": 1}, calls(A, A), f"written|{SECOND}", "a"),
    ],
)
def test_each_call_has_a_result(limits: dict[str, int], reply: str, results: str, notes: str | None) -> None:
    env = turns(**limits)
    message, reward, terminated, truncated, info = env.step(reply)
    assert info["tool_results"] == tuple(results.split("|")) and message == results.replace("|", "\n")
    assert message in env.observation_space
    assert (reward, terminated, truncated) == (-0.1 if notes is None else 0.0, False, "max_actions" in limits)
    assert info["action_is_valid"] == (notes is not None) and "".join(env.game.notes) == (notes or "")
    assert info["num_actions"] + info["actions_left"] == limits.get("max_actions", 10)


def test_a_tool_may_be_asynchronous_and_may_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(number: int) -> int:
        """Wait, then double.

        Args:
            number: What.
        """
        await asyncio.sleep(0)
        return 2 * number

    def leave() -> None:
        """End the program."""
        raise SystemExit(3)

    monkeypatch.setattr(Notes, "tools", (later, leave))
    env = turns()
    results = env.step(calls(("later", {"number": 2}), ("leave", {}), ("later", {"number": 3})))[4]["tool_results"]
    assert results == ("4", "Error: SystemExit: 3", "6")

    async def notebook() -> str:
        return str(env.step(calls(("later", {"number": 4})))[0])

    assert asyncio.run(notebook()) == "8"  # within a running loop


def test_a_result_is_cut_at_its_limit_and_a_thought_may_be_asked_for() -> None:
    env = turns(Notes(max_result_length=60))
    message = env.step(calls(("write", {"text": "x" * 50, "times": 4}), ("read", {})))[4]["tool_results"][1]
    assert message == "x" * 38 + "\n[203 characters, cut]" and len(message) <= 60
    env = turns(think=True)
    assert env.reply_prefix == "<think>"
    assert env.step(calls(("read", {})))[0] == "Error: the reply has no thought before its calls"
    assert env.step(f"<think>so</think>{calls(('write', {'text': 'a'}))}")[0] == "written"
    assert env.step(env.format_reply([write_call("read", {})], "so"))[0] == "a"


class Hunt(ToolEnv):
    """Guess a number from 1 to 4; a wrong guess ends the game."""

    @property
    def tools(self) -> Sequence[Tool]:
        return [Tool("guess", "Guess.", {"properties": {"number": {"type": "integer"}}}, self.guess)]

    def guess(self, number: int) -> None:
        self.guessed = number

    def _start(self, options: Mapping[str, Any]) -> str:
        self.number = int(self.np_random.integers(1, 5))
        return "Guess it in one."

    def _judge(self) -> Any:
        success = self.guessed == self.number
        return float(success), self.guessed > 0, {"success": success}

    def _answered(self, text: str) -> Any:
        return float(text == str(self.number)), False, {"success": text == str(self.number)}


def test_an_end_is_not_always_a_success() -> None:
    env = ToolTurns(Hunt())
    env.reset(seed=0)
    right = env.game.number
    wrong = right % 4 + 1
    guesses = {number: calls(("guess", {"number": number})) for number in (0, wrong, right)}
    for replies, ends in (
        ((guesses[0], guesses[wrong], guesses[right]), ((0.0, False, False), (0.0, True, False), (0.0, True, False))),
        ((guesses[right],), ((1.0, True, True),)),
        ((str(wrong),), ((0.0, True, False),)),  # an answer ends the episode, whatever the judge says of that
        ((str(right),), ((1.0, True, True),)),
    ):
        env.reset(seed=0)
        for reply, end in zip(replies, ends, strict=True):
            _, reward, terminated, _, info = env.step(reply)
            assert (reward, terminated, info["success"]) == end
