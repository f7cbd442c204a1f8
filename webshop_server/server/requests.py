"""Reads what clients send: names of sessions, pages, options, filters, rules.

Everything from outside passes through here before anything else sees it. What cannot be read is refused with a status
and a sentence that says what to do.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from flask import abort

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import SPLITS
from webshop_server.store.answer import MODES, REWARDS
from webshop_server.store.filters import Filter, parse_filter, with_filter
from webshop_server.store.shop import Rules
from webshop_server.store.state import CONTROL, MAX_QUERY

MAX_BODY = 64 * 1024  # bytes
MAX_NAME = 128
MAX_LITERAL = 4000  # characters of a list or dict in an address
_NAME = re.compile(r"[\w.~:@-]+", re.ASCII)
_FIXED = re.compile(r"(?:.*_)?(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_CHOICES = {"split": tuple(SPLITS), "mode": MODES, "reward": REWARDS, "parity": ("0", "1"), "show_actions": ("0", "1")}
_NUMBERS = ("goal", "index", "seed")


def refuse(status: int, message: str) -> NoReturn:
    """Ends the request with a page that says `message`."""
    abort(status, description=message)


def session_name(text: str) -> str:
    """Reads a name that a client chose for its session; 404 if it has other characters than `_NAME`, or too many."""
    if len(text) > MAX_NAME or _NAME.fullmatch(text) is None:
        refuse(404, f"a session's name has 1 to {MAX_NAME} letters, digits or _.~:@-")
    return text


def fixed_goal(name: str) -> int | None:
    """The goal that a name such as "fixed_17" asks for; None if the name has no "fixed" in it.

    It is refused with 404 if there is no number after its last "_".
    """
    if "fixed" not in name:
        return None
    match = _FIXED.fullmatch(name)
    if match is None:
        refuse(404, f"the name {name!r} has 'fixed' in it but no number after its last '_'")
    return int(match[1])


def asked_for(query: Mapping[str, str], formula: str) -> tuple[str, dict[str, int], Rules]:
    """Reads the query of a start page: how a program wants to play.

    | field | meaning |
    |---|---|
    | `goal`, or `index`, or `seed` | number of a goal; its place in `split`; draws one from it. Without any, any goal |
    | `split`, `mode`, `reward` | as the arguments of `Shop.find_goal` and of `Rules`; one of the names there |
    | `parity`, `show_actions` | 0 or 1 |
    """
    for name, value in query.items():
        if name in _NUMBERS:
            if _NUMBER.fullmatch(value) is None:
                refuse(400, f"{name}={value[:40]!r} must be a whole number from 0 on")
        elif name not in _CHOICES:
            refuse(400, f"there is no field {name[:40]!r}; use {', '.join((*_NUMBERS, *_CHOICES))}")
        elif value not in _CHOICES[name]:
            refuse(400, f"{name}={value[:40]!r} must be one of {', '.join(_CHOICES[name])}")
    numbers = {name: int(query[name]) for name in _NUMBERS if name in query}
    if len(numbers) > 1:
        refuse(400, "give only one of goal, index and seed")
    parity, shows = (query.get(name) == "1" for name in ("parity", "show_actions"))
    rules = Rules(query.get("mode", "text"), query.get("reward", formula), parity, shows)
    if parity and rules.mode == "short":
        refuse(400, "mode 'short' is not the original's; leave parity out, or take 'text'")
    return query.get("split", "all"), numbers, rules


def search_words(text: str) -> tuple[str, ...]:
    """Reads the keywords of an address: a list, or plain text, which is one keyword as in the original."""
    words: Any = literal(text) if text.startswith("[") else [text]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        refuse(400, f"the keywords {text[:60]!r} cannot be read: write a list of strings, or words")
    check_query(" ".join(words))
    return tuple(words)


def literal(text: str) -> Any:
    """What a text stands for in JSON or in Python's notation, as programs for the original write it; None if nothing.

    >>> literal('''['red', "men's"]'''), literal('{"fit type": "men"}'), literal("print()")
    (['red', "men's"], {'fit type': 'men'}, None)
    """
    if len(text) > MAX_LITERAL:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
            json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be shown
            return found
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def check_query(query: str) -> None:
    """Refuses queries that no shopper writes: blank ones, long ones, and those with control characters in them."""
    if not query.strip():
        refuse(400, "the search is empty; write what you are looking for")
    if len(query) > MAX_QUERY:
        refuse(400, f"a search has at most {MAX_QUERY} characters, this has {len(query)}")
    if CONTROL.search(query):
        refuse(400, "the search has control characters in it")


def number(text: str, what: str, most: int = 10**6) -> int:
    """Reads a number from 1 to `most`; refused with 400 if it is not one."""
    found = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= found <= most:
        refuse(400, f"{what} {text[:20]!r} is not a number from 1 to {most}")
    return found


def chosen_options(text: str, fields: Mapping[str, str], product: Product) -> tuple[tuple[str, str], ...]:
    """Reads the options of an address, and those of a form that add to them."""
    options = literal(text)
    if not isinstance(options, dict):
        refuse(400, f"the options {text[:60]!r} cannot be read: write a dict of strings")
    options = {**options, **fields}
    for name, value in options.items():
        if not isinstance(name, str) or value not in product.options.get(name, ()):
            told = f"product {product.asin} has no option {name!r:.40} with the value {value!r:.40}"
            refuse(400, f"{told}; take one from its page")
    return tuple(options.items())


def filters(texts: Iterable[str]) -> tuple[Filter, ...]:
    """Reads filters, such as "price<50"."""
    found: tuple[Filter, ...] = ()
    for text in texts:
        one = parse_filter(text)
        if one is None:
            refuse(400, f"{text[:60]!r} is not a filter; write price<50, category=fashion or color=red")
        found = with_filter(found, one)
    return found
