"""The reader of lists and dicts in addresses: it reads what Python and JSON write, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webshop_server.server.literals import MAX_ENTRIES, MAX_LENGTH, LiteralError, read_dict, read_list

# Half characters cannot be in an address; the empty list is refused later, where it has no meaning.
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(TEXT, max_size=6))
def test_lists_are_read_in_both_notations(items: list[str]) -> None:
    assert read_list(repr(items)) == items
    assert read_list(json.dumps(items)) == items
    assert read_list(json.dumps(items, ensure_ascii=False)) == items


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_dicts_are_read_in_both_notations(entries: dict[str, str]) -> None:
    assert list(read_dict(repr(entries)).items()) == list(entries.items())
    assert list(read_dict(json.dumps(entries)).items()) == list(entries.items())


def test_blanks_and_a_last_comma_are_allowed() -> None:
    assert read_list(" [ 'a' , \"b\", ] ") == ["a", "b"]
    assert read_dict("{ 'a' : 'b' , }") == {"a": "b"}
    assert (read_list("[]"), read_dict("{ }")) == ([], {})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[",
            "['a'",
            "['a',",
            "['a' 'b']",
            "['a'] x",
            "['a\\']",
            "[a]",
            "[1]",
            "[None]",
            "[['a']]",
            "('a',)",
            "{}",
        ),
        *(
            "[__import__('os')]",
            "['a'+'b']",
            "[f'a']",
            "['\\q']",
            "['\\ud800']",
            "['\\U00110000']",
            "[,]",
            "['a',,'b']",
        ),
        "['" + "x" * MAX_LENGTH + "']",
    ],
)
def test_what_is_no_list_of_strings_is_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        read_list(text)


@pytest.mark.parametrize(
    "text", ["", "[]", "{'a'}", "{'a':}", "{'a': 1}", "{1: 'a'}", "{'a': 'b'", "{'a': {}}", "{**x}"]
)
def test_what_is_no_dict_of_strings_is_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        read_dict(text)


def test_there_is_a_bound_on_the_number_of_entries() -> None:
    assert len(read_list(str(["a"] * MAX_ENTRIES))) == MAX_ENTRIES
    with pytest.raises(LiteralError, match=f"more than {MAX_ENTRIES} entries"):
        read_list(str(["a"] * (MAX_ENTRIES + 1)))


def test_a_refusal_shows_the_beginning_only() -> None:
    with pytest.raises(LiteralError) as refused:
        read_list("x" * 1000)
    assert str(refused.value) == f"'{'x' * 77}...' is not a list of strings"
