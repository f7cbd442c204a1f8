"""Words as UAX #29 and Lucene cut them. Every expectation was also Lucene 9.5's own answer."""

import time

import pytest

from webshop_server.text.word_break import words
from webshop_server.text.word_classes import OTHER, classes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Men's t-shirt, size: XL!", ["Men's", "t", "shirt", "size", "XL"]),
        ("", []),
        (" -!? ", []),
        # Letters are joined by . : ' and the middle dot, digits by . , ; ' and the fraction slash.
        ("a.b a:b a'b a\u2019b a\u00b7b", ["a.b", "a:b", "a'b", "a\u2019b", "a\u00b7b"]),
        ("a,b a;b a..b .a.", ["a", "b", "a", "b", "a", "b", "a"]),
        ("1.5 1,000 1;2 1'2 1\u20442", ["1.5", "1,000", "1;2", "1'2", "1\u20442"]),
        ("1:2 1. .5", ["1", "2", "1", "5"]),
        # Neither joins a letter to a digit, but nothing is needed to.
        ("a.1 1.a 12v a1b", ["a", "1", "1", "a", "12v", "a1b"]),
        ("snake_case _a_ __ a__1 _", ["snake_case", "_a_", "a__1"]),
        ("28\u2033 x 1\u00b9 \u00bd \u2776", ["28", "x", "1"]),  # numbers that are no digits
        # A letter keeps its accents, whether composed or not; so does a digit.
        ("caf\u00e9 cafe\u0301 1\u0301", ["caf\u00e9", "cafe\u0301", "1\u0301"]),
        ("\u65e5\u672c\u8a9e", ["\u65e5", "\u672c", "\u8a9e"]),  # Han: one by one
        ("\u3072\u3089", ["\u3072", "\u3089"]),  # Hiragana: one by one
        ("\u30ab\u30bf\u30ab\u30ca x", ["\u30ab\u30bf\u30ab\u30ca", "x"]),  # Katakana: together
        ("\u30ab_a \u30abb", ["\u30ab_a", "\u30ab", "b"]),  # but with letters only by a connector
        ("\ud55c\uad6d\uc5b4a", ["\ud55c\uad6d\uc5b4a"]),  # Hangul is like other letters
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", ["\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"]),  # Thai: together
        ('\u05d0\' \u05d0"\u05d1 \u05d0"', ["\u05d0'", '\u05d0"\u05d1', "\u05d0"]),  # Hebrew
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u2605\u2605 40 \u2605 x", ["\u2605", "\u2605", "40", "\u2605", "x"]),  # each star, and no circle
        ("\u25cf\u2713", []),
        ("\u2764\ufe0f\u2764", ["\u2764\ufe0f", "\u2764"]),
        ("\u2764\ufe0e", ["\u2764"]),  # shown as text: the selector is dropped
        ("\U0001f44d\U0001f3fd\U0001f44d", ["\U0001f44d\U0001f3fd", "\U0001f44d"]),  # skin tone
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", ["\U0001f468\u200d\U0001f469\u200d\U0001f467"]),  # family
        ("\u2764\ufe0f\u200d\U0001f525a", ["\u2764\ufe0f\u200d\U0001f525", "a"]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1e9", ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]),
        ("1\ufe0f\u20e3 #\ufe0f\u20e3 # *\u20e3", ["1\ufe0f\u20e3", "#\ufe0f\u20e3", "*\u20e3"]),  # keycaps
        ("\U0001f3f4\U000e0067\U000e0062\U000e007f!", ["\U0001f3f4\U000e0067\U000e0062\U000e007f"]),  # tags
        ("\u00a9 \u2122a", ["\u00a9", "\u2122", "a"]),
        # The information sign is a letter as well as a pictograph: the longer of both readings counts.
        ("\u2139b \u2139\u200d\u2605", ["\u2139b", "\u2139\u200d\u2605"]),
        ("_\U0001f3fd a", ["\U0001f3fd", "a"]),  # a connector without a word before what is a word by itself
    ],
)
def test_emoji_are_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_what_exceeds_the_buffer_is_cut_there() -> None:
    assert [len(word) for word in words("a" * 600)] == [255, 255, 90]
    assert [len(word) for word in words("x " + "a" * 255 + " y")] == [1, 255, 1]
    # Two UTF-16 units each: 127 of them fit into 255 units.
    assert [len(word) for word in words("\U00010400" * 200)] == [127, 73]
    # A window is as good as a separate text: the dot at its end joins nothing.
    assert [len(word) for word in words("a" * 254 + ".b")] == [254, 1]
    # 300 connectors are no word before there is a letter within reach.
    assert words("_" * 300 + "a") == ["_" * 254 + "a"]


@pytest.mark.parametrize(
    "unit", ["_", "_\u0300", "\u200d", "\U0001f1e6", "#\u0300", "a'", '\u05d0"', "\u2605\u200d\ufe0f", "ab.", "\u2139"]
)
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        words(unit * count)
        return time.process_time() - start

    # Eight times as much takes eight times as long, where quadratic would take 64 times.
    assert min(seconds(16_000) for _ in range(3)) < 24 * min(seconds(2_000) for _ in range(3))


def test_classes_keep_the_length_and_know_every_code_point() -> None:
    assert classes("a1_ .\u65e5\u2605\U0001f3fd\u0301") == "ad_" + OTHER + ".iemx"
    everything = "".join(map(chr, range(0x110000)))
    assert len(classes(everything)) == len(everything)
    # As many as Unicode 12.1 has: characters of the Han script, digits, regional indicators, skin tones.
    letters = classes(everything[:0xE0200])
    assert (letters.count("i"), letters.count("d"), letters.count("r"), letters.count("m")) == (89_231, 10, 26, 5)
    assert classes(chr(0xE01EF) + chr(0xE01F0)) == "x" + chr(0xE01F0)
