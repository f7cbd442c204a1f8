"""What clients may write in addresses, and how the rest is refused."""

from typing import Any

import pytest
from werkzeug.exceptions import HTTPException

from webshop_server.catalog.product import Product
from webshop_server.server.requests import MAX_LITERAL, chosen_options, search_words

SHIRT = Product("B1", "Shirt", "fashion", "", "", options={"color": ("red", "blue"), "size": ("s",)})


def refusal(status: int) -> Any:
    return pytest.raises(HTTPException, check=lambda error: error.code == status)


@pytest.mark.parametrize(
    "text",
    [
        *("[", "['a'", "['a',", "['a'] x", "['a\\']", "[a]", "[1]", "[['a']]", "[]", "[ ]"),
        *("[__import__('os')]", "[f'a']", "['\\ud800']", "['\\U00110000']", "['a',,'b']", "[" * 3000),
        *("['" + "x" * MAX_LITERAL + "']", "", " ", "\x00", "x" * 1001),
    ],
)
def test_keywords_are_a_list_of_strings_or_one_text(text: str) -> None:
    with refusal(400):
        search_words(text)


def test_keywords_are_read_in_the_notations_of_python_and_json() -> None:
    for text in ("""['red', "men's", 'café']""", '["red", "men\\u0027s", "caf\\u00e9"]'):
        assert search_words(text) == ("red", "men's", "café")
    assert search_words("red shoes+x") == ("red shoes+x",)
    assert search_words('["\\ud83d\\ude00"]') == ("😀",)


def test_options_are_those_of_the_product() -> None:
    assert chosen_options("{'size': 's', 'color': 'red'}", {}, SHIRT) == (("size", "s"), ("color", "red"))
    added = chosen_options('{"color": "red"}', {"size": "s", "color": "blue"}, SHIRT)
    assert added == (("color", "blue"), ("size", "s"))
    for text, fields in (
        *(("{'color': 'green'}", {}), ("{'weight': 's'}", {}), ("{}", {"color": "s"}), ("{}", {"x": "y"})),
        *(("{", {}), ("[]", {}), ("{'color': 1}", {}), ("{1: 'red'}", {}), ("dict()", {}), ("{'a':" * 500, {})),
    ):
        with refusal(400):
            chosen_options(text, fields, SHIRT)
