"""What clients may send, and how the rest is refused; what is counted and drawn."""

import json
from typing import Any

import pytest

from webshop_server.catalog.product import Product
from webshop_server.server.literals import MAX_ENTRIES, MAX_LENGTH, LiteralError, read_list
from webshop_server.server.metrics import Metrics
from webshop_server.server.validation import RequestError, chosen_options, read_action, read_session_request


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "['a'", "['a',", "['a' 'b']", "['a'] x", "['a\\']", "[a]", "[1]", "[['a']]", "('a',)", "{}"),
        *("[__import__('os')]", "['a'+'b']", "[f'a']", "['\\q']", "['\\ud800']", "['\\U00110000']", "['a',,'b']"),
        "['" + "x" * MAX_LENGTH + "']",
    ],
)
def test_what_is_no_list_of_strings_is_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        read_list(text)


CHOICES = {"split": ("all", "test"), "mode": ("text", "html"), "reward": ("fixed",)}
SHIRT = Product("B1", "Shirt", "fashion", "", "", options={"color": ("red", "blue"), "size": ("s",)})


def refusal(status: int, code: str) -> Any:
    return pytest.raises(RequestError, check=lambda error: (error.status, error.code) == (status, code))


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


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"goal": True}, "bad_field"),
        ({"goal": 1.5}, "bad_field"),
        ({"seed": 2**63}, "bad_field"),
        ({"goal": 1, "seed": 1}, "bad_field"),
        ({"split": "dev"}, "bad_field"),
        ({"mode": None}, "bad_field"),
        ({"goals": 1}, "unknown_field"),
    ],
)
def test_wrong_fields_are_refused_by_name(fields: dict[str, Any], code: str) -> None:
    with refusal(400, code) as refused:
        read_session_request(json.dumps(fields).encode(), CHOICES)
    assert next(iter(fields)) in refused.value.message


def test_there_is_a_bound_on_the_number_of_entries() -> None:
    assert len(read_list(str(["a"] * MAX_ENTRIES))) == MAX_ENTRIES
    with pytest.raises(LiteralError, match=f"more than {MAX_ENTRIES} entries"):
        read_list(str(["a"] * (MAX_ENTRIES + 1)))


def test_a_bucket_counts_every_request_that_took_no_longer() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.002, 0.002, 0.2, 3.0):
        metrics.begin()
        metrics.end(200, seconds)
    lines = metrics.text(sessions=0).splitlines()[-12:]
    # Up to 1 ms, 2.5, 5, 10, 25, 50, 100, 250 ms, 1 s, and any time; their sum and number.
    assert [float(line.split()[-1]) for line in lines] == [1, 3, 3, 3, 3, 3, 3, 4, 4, 5, 3.205, 5]
    assert 'webshop_request_seconds_bucket{le="0.0025"} 3' in lines
