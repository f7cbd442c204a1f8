"""Words that pages, docstrings, comments and messages of this project do without, each with what to write instead.

They are archaic, private to this project, or wrong in its sense. A word belongs here if it is never right; what is
right in some places only is left to a reader. Names in code are not looked at.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each from the beginning of a word.
REMEDIES = {
    r"anew\b": "again, or new",
    r"dice\b": "sampling seed, random seed, or random numbers",
    r"luck\b": "outcome seed, outcomes, or chance",
    r"of one's own\b": "your own, or its own",
    r"in the place of\b": "instead of",
    r"(?<!,\s)(?<=\s)but for\b": "except",
    r"stands? alone\b": "standalone, or by itself",
    r"who(?:so)?ever\b": "a caller who, or anybody who",
    r"who (?:wants|only wants|outgrows|passes)\b": "to, or if you",
    r"behind (?:it|that|each|every|its first|the (?:first|last|next|update|rollout))\b": "after",
    r"go(?:es)? on behind\b": "continues after",
    r"for want of\b": "because there is no",
    r"(?:is|are|was|were) to be\b": "must be, will be, or should be",
    r"of no account\b": "ignored",
    r"foretells?\b|foretold\b": "predicts, predicted",
    r"(?:there|where|here)(?:of|in|upon|unto)\b": "of it, in it",
    r"(?:hitherto|henceforth|forthwith|whence|thence|thither|hither)\b": "so far, from now on, from there",
    r"(?:thrice|naught|nought|lest)\b": "three times, nothing, nothing, so that not",
    r"(?:amidst|whilst|amongst)\b": "during, while, among",
}
# For text in lower case: to look for them in either case takes several times as long.
ANY = re.compile(rf"\b(?:{'|'.join(REMEDIES)})")
BANNED = {re.compile(rf"\b(?:{pattern})", re.IGNORECASE): remedy for pattern, remedy in REMEDIES.items()}
QUOTED = re.compile(r"`[^`]*`")  # code in a sentence
PAGES = ("README.md", "CHANGELOG.md", "benchmarks/README.md", "docs", "examples")
CODE = ("ragen_envs", "ragen_trl", "webshop_server", "benchmarks", "tests")
# Where a banned word is a name that must stay: (path, the word as it is found).
NAMES = {("ragen_trl/policies/api/policy.py", "dice")}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of what people read: all of a page; comments and strings of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    if not ANY.search(text.lower()):
        return  # to take code apart needs most of the time
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def words(line: str) -> Iterator[tuple[str, str]]:
    """Each banned word of a line with its remedy."""
    said = QUOTED.sub("", line)
    if ANY.search(said.lower()):
        for pattern, remedy in BANNED.items():
            yield from ((match[0].strip(), remedy) for match in pattern.finditer(said))


def offences(root: Path, sources: list[Path], places: tuple[str, ...]) -> list[str]:
    """Each banned word in the files of these places, with its remedy."""
    return [
        f"{path}:{number}: {word!r}; write {remedy}"
        for path in sources
        if path.suffix in (".py", ".md") and {str(path), *map(str, path.parents)} & set(places)
        for number, line in prose(root / path)
        for word, remedy in words(line)
        if (str(path), word) not in NAMES and path.name != Path(__file__).name
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is played anew by whoever asks.", ["anew", "whoever"]),
        ("Everything but for the first.", ["but for"]),
        ("It fits one, but for two it is too small.", []),
        ("A model behind an API, `dice` in its key.", []),
        ("The row behind the last update is to be dropped.", ["behind the last", "is to be"]),
        ("Therein, into the store.", ["Therein"]),
    ],
)
def test_the_words_are_found(text: str, found: list[str]) -> None:
    assert [word for word, _ in words(text)] == found


def test_pages_and_examples_are_in_plain_english(root: Path, sources: list[Path]) -> None:
    assert offences(root, sources, PAGES) == []


def test_code_is_in_plain_english(root: Path, sources: list[Path]) -> None:
    assert offences(root, sources, CODE) == []
