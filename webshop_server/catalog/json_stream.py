"""JSON files that are larger than memory, one value at a time: arrays, objects, and JSON Lines.

A value is decoded by the standard library's decoder from a window on the file that holds little more than that value.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

CHUNK = 1 << 20  # characters read at a time
MAX_VALUE = 1 << 25  # characters; the largest product of the public data has some 30,000
LOOKAHEAD = 3  # characters after a number that tell whether it goes on; "e+" and a digit at most
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class CatalogError(ValueError):
    """A catalogue cannot be read. The message names the file, the place and what to do."""


class _Window:
    """The part of a file that is being decoded."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path = path
        self._file = file
        self._text = ""
        self._at = 0
        self._ended = False

    def error(self, place: str, problem: str) -> CatalogError:
        """Names the file and the place in it."""
        return CatalogError(f"{self.path}, {place}: {problem}")

    def _read_on(self, place: str) -> None:
        """Drops what was decoded, and doubles what is left or adds a chunk, whichever is more."""
        rest = self._text[self._at :]
        if len(rest) > MAX_VALUE:
            raise self.error(place, f"no end of the value after {MAX_VALUE:,} characters; is a bracket missing?")
        try:
            added = self._file.read(max(CHUNK, len(rest)))
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 ({error.reason}); convert the file to UTF-8"
            raise self.error(f"at or after {place}", problem) from error
        self._text, self._at, self._ended = rest + added, 0, not added

    def next_character(self, place: str) -> str:
        """The next character that is not blank, left in the window; "" at the end of the file."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            assert blanks is not None
            self._at = blanks.end()
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_on(place)

    def take(self, place: str, wanted: str) -> str:
        """Takes one of the characters `wanted` out of the window."""
        found = self.next_character(place)
        if not found or found not in wanted:
            seen = f"{found!r}" if found else "the end of the file"
            raise self.error(place, f"expected one of {' '.join(wanted)} but found {seen}; the file is cut or damaged")
        self._at += 1
        return found

    def value(self, place: str) -> object:
        """Takes a whole value out of the window, reading on until it is complete."""
        self.next_character(place)
        seen_before = ("", -1)
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError as error:
                raise self.error(place, "nested too deeply; a product is at most a few levels deep") from error
            except json.JSONDecodeError as error:
                # More text may complete a value. An error that stays where it was is real, except in a string,
                # where only the start is ever named.
                seen = (error.msg, error.pos - self._at)
                if self._ended or (seen == seen_before and "string" not in error.msg):
                    raise self.error(place, f"not JSON ({error.msg}); the file is cut or damaged") from error
                seen_before = seen
            except ValueError as error:  # a number with thousands of digits
                raise self.error(place, f"not a usable number ({error})") from error
            else:
                # "12" may be the start of "123" or, with a few characters more in the window, of "12e+3".
                if len(self._text) - end >= LOOKAHEAD or self._ended:
                    self._at = end
                    return value
            self._read_on(place)


def array_elements(path: Path) -> Iterator[tuple[str, object]]:
    """Reads the elements of a file that is one JSON array.

    Args:
        path: The file, UTF-8.

    Yields:
        The place, "record 1" being the first, and the element.

    Raises:
        CatalogError: If the file is no array, is cut or is damaged.
    """
    with path.open(encoding="utf-8-sig") as file:
        window = _Window(path, file)
        place, number = "record 1", 1
        window.take(place, "[")
        if window.next_character(place) == "]":
            window.take(place, "]")
        else:
            after = ","
            while after == ",":
                place = f"record {number}"
                yield place, window.value(place)
                after = window.take(f"after {place}", ",]")
                number += 1
        _nothing_more(window)


def object_members(path: Path) -> Iterator[tuple[str, object]]:
    """Reads the members of a file that is one JSON object.

    Args:
        path: The file, UTF-8.

    Yields:
        Key and value, in the order of the file.

    Raises:
        CatalogError: If the file is no object, is cut or is damaged.
    """
    with path.open(encoding="utf-8-sig") as file:
        window = _Window(path, file)
        place = "member 1"
        window.take(place, "{")
        if window.next_character(place) == "}":
            window.take(place, "}")
        else:
            after, number = ",", 1
            while after == ",":
                key = window.value(f"the key of member {number}")
                if not isinstance(key, str):
                    raise window.error(f"member {number}", f"its key {key!r} is not text; the file is damaged")
                place = f"member {number} ({key!r})"
                window.take(place, ":")
                yield key, window.value(place)
                after = window.take(f"after {place}", ",}")
                number += 1
        _nothing_more(window)


def _nothing_more(window: _Window) -> None:
    found = window.next_character("the end")
    if found:
        raise window.error("the end", f"expected nothing more but found {found!r}; the file is damaged")


def json_lines(path: Path) -> Iterator[tuple[str, object]]:
    """Reads a file of one JSON value a line; blank lines are skipped.

    Args:
        path: The file, UTF-8.

    Yields:
        The place, "record 1" being the first line, and the value.

    Raises:
        CatalogError: If a line is not JSON.
    """
    number = 0
    # Bytes are split at \n only; text would also be split where a product's text has, say, a lone \r.
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"record {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield place, json.loads(text)
            except UnicodeDecodeError as error:
                problem = f"not UTF-8 ({error.reason}); convert the file to UTF-8"
                raise CatalogError(f"{path}, {place}: {problem}") from error
            except (ValueError, RecursionError) as error:
                raise CatalogError(f"{path}, {place}: not JSON ({error}); the line is cut or damaged") from error
