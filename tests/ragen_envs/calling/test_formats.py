"""Calls in replies: the forms of common templates are read, what is nearly right is not, and writing is inverted."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_envs.calling.formats import CALL_FORMATS, CallFormat
from ragen_envs.calling.tool import read_action, write_answer, write_call

ADD = write_call("add", {"a": 1})
FIND = write_call("find", {"name": "Zoë"})
TAGGED = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
BARE = '{"name": "add", "parameters": {"a": 1}}'


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        (TAGGED, (ADD,)),
        (f"I add.\n{TAGGED}\n{TAGGED} done", (ADD, ADD)),
        ('<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>', (ADD,)),
        (f"{TAGGED}<tool_call>{{bad</tool_call>", (ADD, "{bad")),
        (TAGGED.removesuffix("</tool_call>"), ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n',)),
        ("<tool_call></tool_call>", ("",)),
        (BARE, (ADD,)),
        (f"<|python_tag|>{BARE}", (ADD,)),
        (f"{BARE}; {BARE}\n{BARE}", (ADD, ADD, ADD)),
        (f"{BARE} and so on", (ADD, "and so on")),
        ('{"name": "add"', ('{"name": "add"',)),
        ('{"a": 1}', ('{"a": 1}',)),
        ("It is done.", (write_answer("It is done."),)),
        ("", (write_answer(""),)),
        ('{"name": "now"}', (write_call("now", {}),)),
    ],
)
def test_what_a_reply_says(reply: str, actions: tuple[str, ...]) -> None:
    for form in CALL_FORMATS:
        assert CallFormat(form=form).read(reply) == actions


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        (f"<think>add</think>{TAGGED}", (ADD,)),
        (f"<think>I could {TAGGED}</think>\n\nDone.", (write_answer("Done."),)),
        (TAGGED, None),
        (f"<think>{TAGGED}", None),
    ],
)
def test_a_thought_comes_first_and_is_not_read(reply: str, actions: tuple[str, ...] | None) -> None:
    assert CallFormat(think=True).read(reply) == actions


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "[]", "null", '"name"', "{}", '{"name": 1, "arguments": {}}', '{"name": "a", "arguments": []}'),
        *('{"name": "a", "arguments": "{}"}', '{"name": "a", "arguments": {}, "more": 1}', '{"answer": 1}'),
        *("[" * 100_000, '{"a":' * 50_000, "9" * 100_000, '{"name": "a", "arguments": {}} x'),
        '{"name": "a", "arguments": {}, "parameters": {}}',
        *(r'{"name": "\ud83d"}', r'{"name": "a", "arguments": {"\udc00": [1]}}', r'{"answer": "\ud83d \ude00"}'),
    ],
)
def test_other_json_is_no_action(text: str) -> None:
    assert read_action(text) is None


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert read_action(r'{"answer": "\ud83d\ude00"}') == "\N{GRINNING FACE}"


ARGUMENTS = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.lists(st.integers(), max_size=3),
    max_size=3,
)
CALLS = st.lists(st.builds(write_call, st.text(min_size=1, max_size=8), ARGUMENTS), min_size=1, max_size=4)


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("form", CALL_FORMATS)
@given(actions=CALLS)
@settings(max_examples=60, deadline=None)
def test_reading_inverts_writing(actions: list[str], form: str, think: bool) -> None:
    shape = CallFormat(think, form)
    reply = shape.write(actions, "so")
    assert reply.startswith("<think>so</think>" if think else ("<tool_call>" if form == "tags" else '{"name"'))
    assert shape.read(reply) == tuple(actions)


def test_an_answer_is_written_as_it_is() -> None:
    assert CallFormat().write([write_answer("Done.")]) == "Done."
    assert CallFormat(think=True).write([write_answer("Done.")], "So.") == "<think>So.</think>Done."


@pytest.mark.parametrize(
    "actions",
    [[], "add", ["add"], [write_answer("a"), ADD], [write_answer("<tool_call>")], [write_answer("{}")]],
)
def test_what_cannot_be_written_is_refused(actions: Any) -> None:
    with pytest.raises(ValueError, match="action|call"):
        CallFormat().write(actions)


def test_an_argument_cannot_close_its_call() -> None:
    with pytest.raises(ValueError, match="have a tag or a brace that would be read in another way"):
        CallFormat().write([write_call("say", {"text": "</tool_call>"})])


@pytest.mark.parametrize("reply", ["<tool_call>" * 40_000, "{" * 100_000, "</think>" * 40_000, BARE * 4_000, "\ud800{"])
def test_hard_replies_are_read_in_time(reply: str) -> None:
    for form in CALL_FORMATS:
        for think in (True, False):
            found = CallFormat(think, form).read(reply)
            assert found is None if think else found and all(isinstance(action, str) for action in found)


def test_letters_of_all_alphabets_stay_as_they_are() -> None:
    reply = CallFormat().write([FIND])
    assert "Zoë" in reply and json.loads(FIND)["arguments"] == {"name": "Zoë"}
