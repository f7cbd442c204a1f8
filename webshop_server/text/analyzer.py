"""From text to search terms, exactly as pyserini's DefaultEnglishAnalyzer on Lucene 9.5 makes them.

It splits words by UAX #29 as Lucene's StandardTokenizer does, emoji sequences being words, removes a possessive 's,
lower-cases, removes 33 stop words and takes Porter's stems.

The rules for words are regular expressions over one class letter per character, so plain text is cut at the speed of
`re`. Lucene takes the longest match of any rule; here the order of the rules sees to that, except where a character
belongs to two rules or a word is longer than Lucene's buffer: such texts take the slow way.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import tomllib

from webshop_server.text.porter import stem

STOP_WORDS = frozenset(
    """a an and are as at be but by for if in into is it no not of on or such that the their then there these they
    this to was will with""".split()
)
_REMEMBERED = 40  # characters; longer parts hardly come twice
_APOSTROPHES = "'\u2019\uff07"
OTHER = " "
"""Class of what separates words."""
MAX_LENGTH = 255
"""Longest word in UTF-16 units; a longer one is cut there, and the rest is read as a separate text."""

# What stays with the character before it (WB4), and the same without the two presentation selectors.
_X = "[xzKtpmTES]*"
_Y = "[xzKmTES]*"
_LETTERS = f"(?:[ab]+|h){_X}"
_DIGITS = f"[dn]+{_X}"
_CONNECTORS = f"(?:_{_X})+"
# Hebrew takes an apostrophe at its end and a quotation mark inside (WB7a to WB7c); then digits (WB8, WB11, WB12) and
# letters (WB5 to WB7) with what joins them, one after the other as they come (WB9, WB10).
_HEBREW = f"h{_X}'{_X}|h{_X}\"{_X}h{_X}"
_RUN = f"(?:{_HEBREW}|{_DIGITS}(?:[,.']{_X}{_DIGITS})*|{_LETTERS}(?:[:.']{_X}{_LETTERS})*)+"
_PART = f"(?:(?:k{_X})+|{_RUN})"
# Connectors tie all of these together (WB13, WB13a, WB13b), and are no word without them.
_WORD = f"(?:{_CONNECTORS})?{_PART}(?:{_CONNECTORS}{_PART})*(?:{_CONNECTORS})?"
# A pictograph with what belongs to it, then more of them by zero-width joiners. A joiner may be among the marks that
# _Y has taken already, which the look-behind sees. A skin tone counts as a pictograph.
_PICTURE = f"[eb]{_Y}p?"
_PICTURES = f"(?:z*{_PICTURE}|m{_Y})(?:(?<=z){_PICTURE}|z+{_PICTURE}|zm{_Y})*"
_TAGGED = f"z*[eb]{_Y}pT+E"
_KEYCAP = f"#{_Y}p?K{_Y}"  # those of digits are words already
_FLAG = f"r{_X}r{_X}"
_EMOJI = f"{_TAGGED}|{_PICTURES}|{_KEYCAP}|{_FLAG}"
_SOUTH_EAST_ASIAN = f"[sS][s{_X[1:]}"  # cut between words only by a dictionary, so kept together
_OTHERS = f"{_SOUTH_EAST_ASIAN}|[ig]{_X}"

# Connectors and joiners that begin no word are skipped in one go, or a long row of them would be read again and again.
_FAST = re.compile(f"(?P<word>{_WORD}|{_EMOJI}|{_OTHERS})|{_CONNECTORS}|z+")
# Letters that are pictographs too, and connectors that begin no word while their marks do.
_NEEDS_CARE = re.compile("b|_[xKtpTE]*[zmS]")
_FIRST = re.compile(f"{_WORD}|{_OTHERS}")
_SECOND = re.compile(_EMOJI)


def tokens(text: str) -> list[str]:
    """Analyzes a text or a query."""
    # No word has a blank in it, so the parts between blanks can be cut and remembered one by one.
    parts = text.split(" ")
    return [term for part in parts for term in (_terms(part) if len(part) <= _REMEMBERED else _cut(part))]


def _cut(text: str) -> tuple[str, ...]:
    """The terms of a text, one word after the other."""
    return tuple(term for term in map(_term, words(text)) if term)


# Parts of texts follow Zipf's law, as words do: these two answer all but the rare ones, and stay below some 30 MB.
_terms = lru_cache(maxsize=1 << 16)(_cut)


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """The term of one word, or "" if it is a stop word."""
    if len(word) > 1 and word[-1] in "sS" and word[-2] in _APOSTROPHES:
        word = word[:-2]
    # Character by character, as Java does: no final sigma, and one i for a capital one with a dot.
    word = word.lower() if word.isascii() else "".join(letter.lower()[0] for letter in word)
    return "" if word in STOP_WORDS else stem(word)


def _spread(ranges: Mapping[str, str]) -> str:
    """One class letter per code point up to the last that has one."""
    parts = [(letter, part.split("-")) for letter, text in ranges.items() for part in text.split()]
    spans = [(letter, int(ends[0], 16), int(ends[-1], 16) + 1) for letter, ends in parts]
    table = bytearray(OTHER.encode() * max(stop for _, _, stop in spans))
    for letter, start, stop in spans:
        table[start:stop] = letter.encode() * (stop - start)
    return table.decode("ascii")


# What `str.translate` takes: a character beyond the table stays itself, and none of those is a class letter.
CLASS_OF = _spread(tomllib.loads(Path(__file__).with_name("word_classes.toml").read_text(encoding="utf-8")))


def words(text: str) -> list[str]:
    """Cuts a text into words, in time linear in its length."""
    letters = text.translate(CLASS_OF)
    if not _NEEDS_CARE.search(letters):
        spans = [match.span() for match in _FAST.finditer(letters) if match.lastgroup]
        # A character is at most two UTF-16 units.
        if all(end - start <= MAX_LENGTH // 2 for start, end in spans):
            return [text[start:end] for start, end in spans]
    return [text[start:end] for start, end in _longest_matches(text, letters)]


def _longest_matches(text: str, letters: str) -> Iterator[tuple[int, int]]:
    """Spans of the words of a text whatever is in it: the longest match of any rule, in a window of Lucene's size."""
    start = 0
    while start < len(letters):
        stop = _window_end(text, start)
        found = (_FIRST.match(letters, start, stop), _SECOND.match(letters, start, stop))
        end = max((match.end() for match in found if match), default=start)
        if end > start:
            yield start, end
        start = max(end, start + 1)


def _window_end(text: str, start: int) -> int:
    """Where a buffer of `MAX_LENGTH` UTF-16 units that begins at `start` ends."""
    stop = min(len(text), start + MAX_LENGTH)
    units = len(text[start:stop].encode("utf-16-le", "surrogatepass")) // 2
    while units > MAX_LENGTH:
        stop -= 1
        units -= 1 + (text[stop] > "\uffff")
    return stop
