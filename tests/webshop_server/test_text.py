"""From text to terms as Lucene has them: words by UAX #29, stop words, and Porter's stems."""

import random

import pytest

from webshop_server.text import analyzer
from webshop_server.text.analyzer import CLASS_OF, OTHER, tokens, words
from webshop_server.text.porter import stem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Men's t-shirt, size: XL!", ["Men's", "t", "shirt", "size", "XL"]),
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
        ('\u05d0\' \u05d0"\u05d1 \u05d0"', ["\u05d0'", '\u05d0"\u05d1', "\u05d0"]),  # Hebrew
        # Emoji are words.
        ("\u2605\u2605 40 \u2605 x", ["\u2605", "\u2605", "40", "\u2605", "x"]),  # each star, and no circle
        ("\u2764\ufe0f\u2764", ["\u2764\ufe0f", "\u2764"]),
        ("\u2764\ufe0e", ["\u2764"]),  # shown as text: the selector is dropped
        ("\U0001f44d\U0001f3fd\U0001f44d", ["\U0001f44d\U0001f3fd", "\U0001f44d"]),  # skin tone
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", ["\U0001f468\u200d\U0001f469\u200d\U0001f467"]),  # family
        ("\u2764\ufe0f\u200d\U0001f525a", ["\u2764\ufe0f\u200d\U0001f525", "a"]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1e9", ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]),
        ("1\ufe0f\u20e3 #\ufe0f\u20e3 # *\u20e3", ["1\ufe0f\u20e3", "#\ufe0f\u20e3", "*\u20e3"]),  # keycaps
        ("\U0001f3f4\U000e0067\U000e0062\U000e007f!", ["\U0001f3f4\U000e0067\U000e0062\U000e007f"]),  # tags
        # The information sign is a letter as well as a pictograph: the longer of both readings counts.
        ("\u2139b \u2139\u200d\u2605", ["\u2139b", "\u2139\u200d\u2605"]),
        ("_\U0001f3fd a", ["\U0001f3fd", "a"]),  # a connector without a word before what is a word by itself
    ],
)
def test_words(text: str, expected: list[str]) -> None:
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


def classes(text: str) -> str:
    return text.translate(CLASS_OF)


def test_classes_keep_the_length_and_know_every_code_point() -> None:
    assert classes("a1_ .\u65e5\u2605\U0001f3fd\u0301") == "ad_" + OTHER + ".iemx"
    everything = "".join(map(chr, range(0x110000)))
    assert len(classes(everything)) == len(everything)
    # As many as Unicode 12.1 has: characters of the Han script, digits, regional indicators, skin tones.
    letters = classes(everything[:0xE0200])
    assert (letters.count("i"), letters.count("d"), letters.count("r"), letters.count("m")) == (89_231, 10, 26, 5)
    assert classes(chr(0xE01EF) + chr(0xE01F0)) == "x" + chr(0xE01F0)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # 1a: plurals.
        *[("caresses", "caress"), ("ponies", "poni"), ("caress", "caress"), ("cats", "cat"), ("ties", "ti")],
        # 1b: past and participle, and what is restored after them.
        *[("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor")],
        *[("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail"), ("filing", "file")],
        # 1c: y after a vowel anywhere before it.
        *[("happy", "happi"), ("sky", "sky"), ("toys", "toi")],
        # 2: with 5a where it follows.
        *[("relational", "relat"), ("conditional", "condit"), ("rational", "ration"), ("valenci", "valenc")],
        *[("digitizer", "digit"), ("conformabli", "conform"), ("radicalli", "radic"), ("vileli", "vile")],
        # 3.
        *[("triplicate", "triplic"), ("formative", "form"), ("electriciti", "electr"), ("hopeful", "hope")],
        *[("goodness", "good")],
        # 4: "ion" only after s or t.
        *[("revival", "reviv"), ("allowance", "allow"), ("airliner", "airlin"), ("adjustable", "adjust")],
        *[("homologou", "homolog"), ("bowdlerize", "bowdler"), ("cushion", "cushion")],
        # 5.
        # The author's later changes.
        *[("as", "as"), ("is", "is"), ("possibly", "possibl"), ("analogi", "analog"), ("geology", "geologi")],
        # y is a vowel after a consonant; what is no English vowel is a consonant.
        *[("syzygy", "syzygi"), ("yes", "ye"), ("caf\u00e9s", "caf\u00e9"), ("\u00e9\u00e9ed", "\u00e9\u00e9ed")],
        *[("1990s", "1990"), ("", ""), ("ies", "i")],
    ],
)
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Women's Running SHOES for the gym", ["women", "run", "shoe", "gym"]),
        ("it's The dog\u2019S cat\uff07s s' 's", ["dog", "cat", "s", "s"]),  # "it" is a stop word once its 's is gone
        ("to be or not to be", []),
        ('machine-washable, 100% cotton; 28" x 28"', ["machin", "washabl", "100", "cotton", "28", "x", "28"]),
        ("T\u00dcR \u0130stanbul \u039f\u03a3", ["t\u00fcr", "istanbul", "\u03bf\u03c3"]),  # no final sigma
        ("\u2605 4.5 stars_only", ["\u2605", "4.5", "stars_onli"]),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_parts_between_blanks_have_the_terms_of_the_whole() -> None:
    """Also where a blank is beside what ties characters together: marks, joiners, connectors, a long word."""
    draw = random.Random(0)
    pieces = [*" \n\t\u202f\u00a0_.,:'\"#*1a", "shoes", "\u05d0", "\u0301", "\u200d", "\ufe0f", "\u20e3", "\U0001f469"]
    pieces += ["\U0001f1e9", "\u0e01", "\u30ab", "\u4e00", "x" * 300, " ", " ", "\u2139", "\ud800"]
    for _ in range(3000):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 12)))
        assert tokens(text) == list(analyzer._cut(text)), ascii(text)
