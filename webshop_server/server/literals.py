"""Reads lists and dicts of strings as they appear in the original's URLs: in Python's notation or in JSON.

The original calls `ast.literal_eval` on the path. Programs written for it send `['red', 'shoes']` and
`{'size': 'small'}`, others JSON. Both are read here by one small reader that knows strings, commas, colons and
brackets, and nothing else: no numbers, no nesting, and an upper bound on length and count.
"""

import re

MAX_LENGTH = 4000
MAX_ENTRIES = 512
_STRING = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*""")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/"}


class LiteralError(ValueError):
    """Text is not a list or dict of strings."""


def read_list(text: str) -> list[str]:
    r"""Reads a list of strings.

    Args:
        text: Such as `['red', "men's"]`.

    Returns:
        The strings.

    Raises:
        LiteralError: If it is something else, or too long.

    >>> read_list('''['red', "men's", "caf\u00e9"]''')
    ['red', "men's", 'café']
    """
    position = _open(text, "[", "a list")
    items: list[str] = []
    while text[position] != "]":
        item, position = _string(text, position, len(items))
        items.append(item)
        position = _separator(text, position, "]")
    _close(text, position)
    return items


def read_dict(text: str) -> dict[str, str]:
    """Reads a dict of strings to strings; of two entries with one key the last counts.

    Args:
        text: Such as `{'size': 'small'}`.

    Returns:
        The entries in order.

    Raises:
        LiteralError: If it is something else, or too long.

    >>> read_dict('{"fit type": "men", "size": "large"}')
    {'fit type': 'men', 'size': 'large'}
    """
    position = _open(text, "{", "a dict")
    entries: dict[str, str] = {}
    while text[position] != "}":
        key, position = _string(text, position, len(entries))
        if not text.startswith(":", position):
            raise LiteralError(f"expected ':' at position {position} of {_short(text)}")
        entries[key], position = _string(text, position + 1, len(entries))
        position = _separator(text, position, "}")
    _close(text, position)
    return entries


def _open(text: str, bracket: str, what: str) -> int:
    if len(text) > MAX_LENGTH:
        raise LiteralError(f"{what} of {len(text)} characters is too long; at most {MAX_LENGTH}")
    start = len(text) - len(text.lstrip())
    if not text.startswith(bracket, start):
        raise LiteralError(f"{_short(text)} is not {what} of strings")
    position = start + 1
    while position < len(text) and text[position].isspace():
        position += 1
    if position >= len(text):
        raise LiteralError(f"{_short(text)} is not closed")
    return position


def _string(text: str, position: int, count: int) -> tuple[str, int]:
    """Reads a string and the blanks around it; returns it and the position after it."""
    match = _STRING.match(text, position)
    if match is None:
        raise LiteralError(f"expected a string in quotes at position {position} of {_short(text)}")
    if count >= MAX_ENTRIES:
        raise LiteralError(f"more than {MAX_ENTRIES} entries in {_short(text)}")
    raw = match[1] if match[1] is not None else match[2]
    try:
        # JSON writes characters beyond 16 bits as two halves; a half alone cannot be written as UTF-8.
        value = _ESCAPE.sub(_unescaped, raw).encode("utf-16", "surrogatepass").decode("utf-16")
    except (UnicodeError, ValueError, OverflowError) as error:
        raise LiteralError(f"bad character in {_short(raw)}") from error
    return value, match.end()


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits is not None:
        return chr(int(digits, 16))
    if match[4] not in _SIMPLE:
        raise LiteralError(f"unknown escape {match[0]!r}")
    return _SIMPLE[match[4]]


def _separator(text: str, position: int, bracket: str) -> int:
    """Steps over a comma, or stays at the closing bracket. Python allows a comma before it."""
    if text.startswith(",", position):
        position += 1
        while position < len(text) and text[position].isspace():
            position += 1
        if position < len(text):
            return position
    elif text.startswith(bracket, position):
        return position
    raise LiteralError(f"expected ',' or {bracket!r} at position {position} of {_short(text)}")


def _close(text: str, position: int) -> None:
    if text[position + 1 :].strip():
        raise LiteralError(f"text after the end of {_short(text)}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
