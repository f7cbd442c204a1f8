"""Fuzzy matching as published, and the strict comparison that replaces it."""

import pytest

from webshop_server.goals.matching import (
    COLOUR_WORDS,
    Closeness,
    closeness,
    first_colour,
    fuzzy_match,
    printed_pair,
    token_set_ratio,
    words,
)


@pytest.mark.parametrize(
    ("left", "right", "ratio"),
    [
        ("x-large", "large", 100),  # one side's words are among the other's
        ("light blue", "blue, light!", 100),
        ("abcd", "abce", 75),  # 2 * 3 / 8
        ("long sleeve", "short sleeve", 71),
        ("", "", 0),
        ("é½", "é½", 0),  # Latin-1 beyond ASCII is dropped, so nothing is left
        ("中文", "中文", 100),  # what lies above is kept
        ("black", "black_style_1", 56),  # "_" does not split words: 2 * 5 / 18
        ("aaaaaabb", "aaaaaacc", 75),
    ],
)
def test_ratio_is_that_of_thefuzz(left: str, right: str, ratio: int) -> None:
    assert token_set_ratio(left, right) == ratio == token_set_ratio(right, left)


def test_a_match_is_rounded_before_it_is_compared() -> None:
    # 2 * 6 / 14 = 85.71 is rounded to 86, which is more than 85; 2 * 11 / 26 = 84.6 is not.
    assert fuzzy_match("abcdefg", "abcdefx")
    assert not fuzzy_match("abcdefghijkuv", "abcdefghijkxy")


def test_colour_words() -> None:
    assert len(COLOUR_WORDS) == 102
    assert list(COLOUR_WORDS) == sorted(COLOUR_WORDS)


def test_published_colours_are_looked_for_anywhere() -> None:
    assert first_colour("fashion black woman") == "ash"
    assert first_colour("r.brown2070") == "brown"
    assert first_colour("light pink") == "light"
    assert first_colour("Black") == "Black"
    assert first_colour("x-large") == "x-large"


def test_printed_pair_is_a_colour_only_if_half_of_it_is_one() -> None:
    assert printed_pair("color", "red") == "red"
    assert printed_pair("color", "navy | red") == "('color', 'navy | red')"
    assert printed_pair("size", '28" x 28"') == "('size', '28\" x 28\"')"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("28\" x 28''", ("28", "x", "28")),
        ("+1.5 lens", ("+1.5", "len")),
        ("size 5-6", ("size", "5", "6")),
        ("clovergoo4857", ("clovergoo", "4857")),
        ("dress 12", ("dress", "12")),
        ("★", ()),
    ],
)
def test_words(text: str, parts: tuple[str, ...]) -> None:
    assert words(text) == parts


@pytest.mark.parametrize(
    ("wanted", "chosen", "expected"),
    [
        ("Large ", "large", Closeness.EQUAL),
        ("★", "★", Closeness.EQUAL),
        ("★", "☆", Closeness.DIFFERENT),
        ("", "red", Closeness.DIFFERENT),
        ("39x49in", "39 x 49 in", Closeness.SAME_WORDS),
        ("grey stripes", "gray stripe", Closeness.SAME_WORDS),
        ("black | white", "white/black", Closeness.SAME_WORDS),
        ("10 x 20", "20 x 10", Closeness.DIFFERENT),
        ("large", "x-large", Closeness.DIFFERENT),
        ("x-large", "xx-large", Closeness.DIFFERENT),
        ("1.5", "15", Closeness.DIFFERENT),
        ("+1.50", "-1.50", Closeness.DIFFERENT),
        ("scented", "unscented", Closeness.DIFFERENT),
        ("vanilla", "vanilla bean", Closeness.DIFFERENT),
        ("size", "x-large", Closeness.DIFFERENT),
        ("a4857", "a4858", Closeness.DIFFERENT),
    ],
)
def test_closeness(wanted: str, chosen: str, expected: Closeness) -> None:
    assert closeness(wanted, chosen) is closeness(chosen, wanted) is expected


@pytest.mark.parametrize(
    ("wanted", "chosen", "similar"),
    [
        ("black", "matte black", True),
        ("grey", "gray-a", True),
        ("light pink", "pink, light dotted", True),
        ("light blue", "light green", False),
        ("light", "light pink", False),
        ("pink", "light pink", False),
        ("black", "black | white", False),
        ("oak brown", "nut brown", False),
        ("black", "black 42", False),
        ("fashion woman", "ash", False),
    ],
)
def test_similar_colours(wanted: str, chosen: str, similar: bool) -> None:
    expected = Closeness.SIMILAR_COLOUR if similar else Closeness.DIFFERENT
    assert closeness(wanted, chosen, is_colour=True) is closeness(chosen, wanted, is_colour=True) is expected
    assert closeness(wanted, chosen) is Closeness.DIFFERENT
