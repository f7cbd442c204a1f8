"""What clients may send, and how the rest is refused."""

import json
from typing import Any

import pytest

from webshop_server.catalog.product import Product
from webshop_server.server.validation import (
    RequestError,
    SessionRequest,
    check_query,
    chosen_options,
    fixed_goal,
    is_searchable,
    page_number,
    read_action,
    read_filters,
    read_session_request,
    search_words,
    session_name,
    sub_page_name,
)

CHOICES = {"split": ("all", "test"), "mode": ("text", "html"), "reward": ("fixed",)}
SHIRT = Product("B1", "Shirt", "fashion", "", "", options={"color": ("red", "blue"), "size": ("s",)})


def refusal(status: int, code: str) -> Any:
    return pytest.raises(RequestError, check=lambda error: (error.status, error.code) == (status, code))


def test_names_of_sessions_are_short_and_plain() -> None:
    for name in ("abc", "fixed_17", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a.b~c:d@e", "x" * 128):
        assert session_name(name) == name
    for name in ("", "x" * 129, "a b", "a/b", "a<b", "ä", "a\n", "a%", "a'"):
        with refusal(404, "bad_session_name"):
            session_name(name)


def test_fixed_names_ask_for_a_goal() -> None:
    assert [fixed_goal(name) for name in ("abc", "fixed_17", "run_fixed_b_0", "12")] == [None, 17, 0, None]
    for name in ("fixed", "fixed_", "fixed_x", "fixed_-1", "fixed_1x", "fixed_1234567890", "fixed_²"):
        with refusal(404, "unknown_goal"):
            fixed_goal(name)


def test_keywords_are_a_list_or_one_keyword() -> None:
    assert search_words("['red', 'shoes']") == ("red", "shoes")
    assert search_words("red+shoes") == ("red+shoes",)
    assert search_words("a/b [c]") == ("a/b [c]",)
    for text, code in (("[1]", "bad_keywords"), ("[]", "empty_query"), ("  ", "empty_query"), ("['']", "empty_query")):
        with refusal(400, code):
            search_words(text)


def test_queries_are_bounded() -> None:
    check_query("x" * 1000)
    with refusal(400, "query_too_long"):
        check_query("x" * 1001)
    with refusal(400, "bad_keywords"):
        check_query("a\x00b")


def test_a_search_of_a_model_has_the_same_bounds() -> None:
    good = (f"search[{'x' * 1000}]", "search[ ]", "search[mügs]\n\x00", "click[\x00]", "x" * 4000, "")
    assert all(map(is_searchable, good))
    assert not any(map(is_searchable, (f"search[{'x' * 1001}]", "search[a\x00b]", "search[\x1b]", " Search[\x1b]")))


def test_pages_are_numbers_from_1_on() -> None:
    assert page_number("1") == 1
    assert page_number("012") == 12
    for text in ("0", "-1", "1.0", "", "one", "1 ", "٣", "1" * 7):
        with refusal(400, "bad_page"):
            page_number(text)


def test_sub_pages_have_exact_names() -> None:
    assert sub_page_name("Features") == "Features"
    for text in ("features", "Secrets", ""):
        with refusal(404, "unknown_page"):
            sub_page_name(text)


def test_options_are_those_of_the_product() -> None:
    assert chosen_options("{'size': 's', 'color': 'red'}", {}, SHIRT) == (("size", "s"), ("color", "red"))
    assert chosen_options("{'color': 'red'}", {"size": "s", "color": "blue"}, SHIRT) == (
        ("color", "blue"),
        ("size", "s"),
    )
    for text, fields in (
        ("{'color': 'green'}", {}),
        ("{'weight': 's'}", {}),
        ("{}", {"color": "s"}),
        ("{}", {"x": "y"}),
    ):
        with refusal(400, "unknown_option"):
            chosen_options(text, fields, SHIRT)
    for text in ("{", "[]", "{'color': 1}", "dict()"):
        with refusal(400, "bad_options"):
            chosen_options(text, {}, SHIRT)


def test_filters_are_read_or_refused() -> None:
    assert [str(one) for one in read_filters(["price<50", "color=red", "price<40"])] == ["color=red", "price<40"]
    with refusal(400, "bad_filter"):
        read_filters(["price<50", "cheap"])


def test_an_action_is_text_of_some_length() -> None:
    assert read_action(b'{"action": "search[m\xc3\xbcgs]"}') == "search[mügs]"
    assert read_action(b'{"action": "search[\\ud800]"}') == "search[?]"
    assert read_action(json.dumps({"action": "x" * 4000}).encode()) == "x" * 4000
    with refusal(400, "action_too_long"):
        read_action(json.dumps({"action": "x" * 4001}).encode())
    for body in (b'{"action": 1}', b"{}", b'{"action": null}', b'{"action": "x", "y": 1}'):
        with refusal(400, "bad_step"):
            read_action(body)
    for body in (b"", b"[]", b"x", b"\xff", b"nul", b"[" * 60_000, b'"x"'):
        with refusal(400, "bad_json"):
            read_action(body)


def test_a_session_request_has_defaults() -> None:
    assert read_session_request(b"", CHOICES) == SessionRequest()
    assert read_session_request(b"{}", CHOICES) == SessionRequest()
    full = {"index": 3, "split": "test", "mode": "html", "reward": "fixed", "parity": True, "goal": None}
    asked = read_session_request(json.dumps(full).encode(), CHOICES)
    assert asked == SessionRequest(index=3, split="test", mode="html", parity=True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"goal": "1"}, "bad_field"),
        ({"goal": True}, "bad_field"),
        ({"goal": 1.5}, "bad_field"),
        ({"goal": -1}, "bad_field"),
        ({"seed": 2**63}, "bad_field"),
        ({"goal": 1, "seed": 1}, "bad_field"),
        ({"parity": 1}, "bad_field"),
        ({"split": "dev"}, "bad_field"),
        ({"mode": ["text"]}, "bad_field"),
        ({"mode": None}, "bad_field"),
        ({"goals": 1}, "unknown_field"),
        ({"": 1}, "unknown_field"),
    ],
)
def test_wrong_fields_are_refused_by_name(fields: dict[str, Any], code: str) -> None:
    with refusal(400, code) as refused:
        read_session_request(json.dumps(fields).encode(), CHOICES)
    assert next(iter(fields)) in refused.value.message
