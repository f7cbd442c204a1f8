"""From text to search terms, exactly as pyserini's DefaultEnglishAnalyzer on Lucene 9.5 makes them.

It splits words by UAX #29, removes a possessive 's, lower-cases, removes 33 stop words and takes Porter's stems.
"""

from functools import lru_cache

from webshop_server.text.porter import stem
from webshop_server.text.word_break import words

STOP_WORDS = frozenset(
    """a an and are as at be but by for if in into is it no not of on or such that the their then there these they
    this to was will with""".split()
)
_REMEMBERED = 40  # characters; longer parts hardly come twice
_APOSTROPHES = "'\u2019\uff07"


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
