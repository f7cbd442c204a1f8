"""Reads what clients send. What cannot be read is refused with a status, a code and a sentence that says what to do.

Everything from outside passes through here before anything else sees it: names of sessions, pages, options, filters and
JSON bodies.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from webshop_server.catalog.product import Product
from webshop_server.server.literals import LiteralError, read_dict, read_list
from webshop_server.store.filters import Filter, parse_filter, with_filter
from webshop_server.store.state import MAX_QUERY, PAGE_SIZE, SUB_PAGES, parse_action

MAX_BODY = 64 * 1024  # bytes
MAX_ACTION = 4000  # characters
MAX_NAME = 128
_NAME = re.compile(r"[\w.~:@-]+", re.ASCII)
_FIXED = re.compile(r"(?:.*_)?(\d{1,9})", re.ASCII)
_PAGE = re.compile(r"\d{1,6}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class RequestError(Exception):
    """A request that is refused.

    Attributes:
        status: HTTP status, 400 to 499.
        code: A word for programs.
        message: A sentence for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def session_name(text: str) -> str:
    """Reads a name that a client chose for its session.

    Raises:
        RequestError: 404 if it has characters that are not letters, digits or one of `_.~:@-`, or too many.
    """
    if len(text) > MAX_NAME or _NAME.fullmatch(text) is None:
        raise RequestError(404, "bad_session_name", f"a session's name has 1 to {MAX_NAME} letters, digits or _.~:@-")
    return text


def fixed_goal(name: str) -> int | None:
    """The goal that a name such as "fixed_17" asks for; None if the name has no "fixed" in it.

    Raises:
        RequestError: 404 if there is no number after its last "_".
    """
    if "fixed" not in name:
        return None
    match = _FIXED.fullmatch(name)
    if match is None:
        raise RequestError(
            404, "unknown_goal", f"the name {name!r} has 'fixed' in it but no number after its last '_'"
        )
    return int(match[1])


def search_words(text: str) -> tuple[str, ...]:
    """Reads the keywords of an address: a list, or plain text, which is one keyword as in the original.

    Raises:
        RequestError: 400 if it is neither, empty or too long.
    """
    if text.startswith("["):
        try:
            words = tuple(read_list(text))
        except LiteralError as error:
            raise RequestError(400, "bad_keywords", f"the keywords cannot be read: {error}") from error
    else:
        words = (text,)
    check_query(" ".join(words))
    return words


def check_query(query: str) -> None:
    """Refuses queries that no shopper writes.

    Raises:
        RequestError: 400 if the query is blank, longer than `MAX_QUERY`, or has control characters in it.
    """
    if not query.strip():
        raise RequestError(400, "empty_query", "the search is empty; write what you are looking for")
    if len(query) > MAX_QUERY:
        raise RequestError(400, "query_too_long", f"a search has at most {MAX_QUERY} characters, this has {len(query)}")
    if _CONTROL.search(query):
        raise RequestError(400, "bad_keywords", "the search has control characters in it")


def is_searchable(action: str) -> bool:
    """Whether an action is no search, or one that `check_query` would take; blanks are left to the store.

    A model may write any search. One that is too long or unprintable is therefore invalid, but no error.
    """
    name, query = parse_action(action)
    return name.strip().lower() != "search" or (len(query) <= MAX_QUERY and _CONTROL.search(query) is None)


def page_number(text: str) -> int:
    """Reads the number of a results page.

    Raises:
        RequestError: 400 if it is not a whole number of at least 1.
    """
    number = int(text) if _PAGE.fullmatch(text) else 0
    if number < 1:
        raise RequestError(400, "bad_page", f"page {text[:20]!r} is not a number from 1 on")
    return number


def number_of_hits(text: str) -> int:
    """Reads how many hits a picture shows at most.

    Raises:
        RequestError: 400 if it is not a whole number from 1 to `PAGE_SIZE`.
    """
    number = int(text) if _PAGE.fullmatch(text) else 0
    if not 1 <= number <= PAGE_SIZE:
        raise RequestError(400, "bad_hits", f"hits {text[:20]!r} is not a number from 1 to {PAGE_SIZE}")
    return number


def sub_page_name(text: str, allowed: Iterable[str] = SUB_PAGES) -> str:
    """Reads the name of a sub page, in its exact case.

    Raises:
        RequestError: 404 if there is none of this name.
    """
    if text not in allowed:
        raise RequestError(404, "unknown_page", f"there is no page {text[:40]!r}; use one of {', '.join(allowed)}")
    return text


def chosen_options(text: str, fields: Mapping[str, str], product: Product) -> tuple[tuple[str, str], ...]:
    """Reads the options of an address, and those of a form that add to them.

    Args:
        text: A dict in Python's notation or JSON.
        fields: Value by option name, from a form.
        product: Whose options they must be.

    Returns:
        Name and value, in the order they were chosen.

    Raises:
        RequestError: 400 if they cannot be read, or the product has no such option or value.
    """
    try:
        options = {**read_dict(text), **fields}
    except LiteralError as error:
        raise RequestError(400, "bad_options", f"the options cannot be read: {error}") from error
    for name, value in options.items():
        if value not in product.options.get(name, ()):
            message = f"product {product.asin} has no option {name[:40]!r} with the value {value[:40]!r}"
            raise RequestError(400, "unknown_option", f"{message}; take one from its page")
    return tuple(options.items())


def read_filters(texts: Iterable[str]) -> tuple[Filter, ...]:
    """Reads filters.

    Args:
        texts: Such as "price<50".

    Raises:
        RequestError: 400 if one is not a filter.
    """
    filters: tuple[Filter, ...] = ()
    for text in texts:
        one = parse_filter(text)
        if one is None:
            message = f"{text[:60]!r} is not a filter"
            raise RequestError(400, "bad_filter", f"{message}; write price<50, category=fashion or color=red")
        filters = with_filter(filters, one)
    return filters


def read_json(body: bytes) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
        body: As it came, UTF-8.

    Raises:
        RequestError: 400 if it is not one.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "bad_json", "the body is not JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise RequestError(400, "bad_json", "the body must be a JSON object: {...}")
    return value


def read_action(body: bytes) -> str:
    """Reads the body of a step: `{"action": text}`.

    Raises:
        RequestError: 400 if it is something else, or the action is too long.
    """
    fields = read_json(body)
    action = fields.get("action")
    if not isinstance(action, str) or len(fields) != 1:
        raise RequestError(400, "bad_step", 'a step is {"action": "search[...]"} and nothing else')
    if len(action) > MAX_ACTION:
        message = f"an action has at most {MAX_ACTION} characters, this has {len(action)}"
        raise RequestError(400, "action_too_long", message)
    # JSON can write halves of characters that nothing else can; they become question marks.
    return action.encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class SessionRequest:
    """What a client asks for when it makes a session; the defaults are those of the API.

    Attributes:
        goal: Number of a goal.
        split: Where `index` counts, or where a goal is drawn.
        index: Position in the split.
        seed: Draws a goal of the split by weight; None draws another one each time.
        mode: Kind of observation.
        reward: What a step pays.
        parity: Whether to behave as the original.
        show_actions: Whether observations end with the actions that are possible.
    """

    goal: int | None = None
    split: str = "all"
    index: int | None = None
    seed: int | None = None
    mode: str = "text"
    reward: str = "fixed"
    parity: bool = False
    show_actions: bool = False


_INTEGERS = ("goal", "index", "seed")
_FLAGS = ("parity", "show_actions")
_MAX_SEED = 2**63


def read_session_request(body: bytes, choices: Mapping[str, Iterable[str]]) -> SessionRequest:
    """Reads the body of a request for a session; an empty one asks for the defaults.

    Args:
        body: A JSON object with any of the fields of `SessionRequest`.
        choices: The values that "split", "mode" and "reward" may have.

    Raises:
        RequestError: 400 if a field is unknown or has a wrong type, or two of them say different things.
    """
    fields = read_json(body) if body.strip() else {}
    for name, value in fields.items():
        if name in _INTEGERS:
            whole = isinstance(value, int) and not isinstance(value, bool)
            good = value is None or (whole and 0 <= value < _MAX_SEED)
            wanted = "a whole number from 0 on, or null"
        elif name in _FLAGS:
            good, wanted = isinstance(value, bool), "true or false"
        elif name in choices:
            good, wanted = isinstance(value, str) and value in choices[name], "one of " + ", ".join(choices[name])
        else:
            known = ", ".join((*_INTEGERS, *_FLAGS, *choices))
            raise RequestError(400, "unknown_field", f"there is no field {str(name)[:40]!r}; use {known}")
        if not good:
            raise RequestError(400, "bad_field", f"{name}={json.dumps(value)[:60]} must be {wanted}")
    asked = SessionRequest(**fields)
    if sum(value is not None for value in (asked.goal, asked.index, asked.seed)) > 1:
        raise RequestError(400, "bad_field", "give only one of goal, index and seed")
    if asked.parity and asked.mode == "short":
        raise RequestError(400, "bad_field", "mode 'short' is not the original's; leave parity out, or take 'text'")
    return asked
