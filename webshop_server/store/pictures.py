"""A picture for every product and every page with products, drawn here, so the store loads nothing from other servers.

It is a symbol of the product's kind (`drawings.toml`) on a pale background: the hue follows from the identifier, the
symbol's colour from the option chosen or the title. Digits are lines, so no picture depends on a machine's fonts.
"""

import hashlib
import itertools
import math
import re
from importlib import resources

import tomllib

from webshop_server.catalog.product import Product
from webshop_server.store.page_text import first_number
from webshop_server.store.state import PAGE_SIZE, PageState, Store

_SIDE = 118  # of a product's square, in the units of the symbols
_LEFT = -9  # where it begins
_PAGE_SIDE = 336  # of the picture of a page, in pixels

_DRAWINGS = tomllib.loads(resources.files("webshop_server.store").joinpath("drawings.toml").read_text("utf-8"))
_OF_WORD: dict[str, str] = {word: path for words, path in _DRAWINGS["kinds"].items() for word in words.split()}
_DEPARTMENTS: dict[str, str] = _DRAWINGS["departments"]
_COLORS: dict[str, str] = _DRAWINGS["colors"]
_DIGITS: list[str] = _DRAWINGS["numbers"]["digits"]
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_PART = re.compile(r"[›&,]")


def svg(product: Product, color: str = "") -> str:
    """Draws a product as SVG without scripts, styles and references; nothing of the product's text is in it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_LEFT} 0 {_SIDE} {_SIDE}" width="320" height="320">'
        f"{_drawing(product, color)}</svg>"
    )


def page_svg(store: Store, state: PageState, hits: int = PAGE_SIZE) -> str:
    """Draws what a page shows: a product, or the hits of a search with their numbers in rows; "" for none."""
    if state.asin:
        parts, columns = [_drawing(store.catalog.product(state.asin), dict(state.options).get("color", ""))], 1
    elif state.kind == "results":
        asins = store.shown(state)[:hits]
        columns = math.ceil(math.sqrt(len(asins)))
        parts = [
            f'<g transform="translate({place % columns * _SIDE} {place // columns * _SIDE})">'
            f"{_drawing(store.catalog.product(asin))}{_badge(first_number(state) + place)}</g>"
            for place, asin in enumerate(asins)
        ]
    else:
        parts = []
    if not parts:
        return ""
    side = columns * _SIDE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_LEFT} 0 {side} {side}" '
        f'width="{_PAGE_SIDE}" height="{_PAGE_SIDE}">'
        f'<rect x="{_LEFT}" width="{side}" height="{side}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _drawing(product: Product, color: str = "") -> str:
    """The elements of a product's drawing."""
    hue = hashlib.sha256(product.asin.encode()).digest()[0] * 360 // 256
    fill = _named(color) or _named(product.title) or f"hsl({hue},45%,55%)"
    return (
        f'<rect x="{_LEFT}" width="{_SIDE}" height="{_SIDE}" fill="hsl({hue},40%,90%)"/>'
        f'<path d="{_symbol(product)}" fill="{fill}" stroke="#3b4450" stroke-width="2.5" stroke-linejoin="round"/>'
    )


def _named(text: str) -> str | None:
    """The first colour that a text names."""
    words = _WORD.findall(text.lower())
    pairs = [*map(" ".join, itertools.pairwise(words)), ""]
    names = (name for pair, word in zip(pairs, words, strict=False) for name in (pair, word))
    return next((_COLORS[name] for name in names if name in _COLORS), None)


def _badge(number: int) -> str:
    """A number in the upper left corner of a product's drawing."""
    digits = str(number)
    lines = "".join(
        f'<path d="{_DIGITS[int(digit)]}" transform="translate({_LEFT + 6 + 15 * place} 5)" fill="none" '
        'stroke="#11161c" stroke-width="3.5" stroke-linejoin="round"/>'
        for place, digit in enumerate(digits)
    )
    return f'<rect x="{_LEFT}" width="{7 + 15 * len(digits)}" height="26" fill="#ffffff"/>{lines}'


def _symbol(product: Product) -> str:
    """The drawing of a product's kind, as the data of an SVG path."""
    parts = [product.query, *reversed(_PART.split(product.product_category))]
    words = (word for part in parts for word in reversed(_WORD.findall(part.lower())))
    names = (name for word in words for name in _names(word))
    found = next((_OF_WORD[name] for name in names if name in _OF_WORD), None)
    return found or _DEPARTMENTS.get(product.category.lower(), _DEPARTMENTS["other"])


def _names(word: str) -> tuple[str, ...]:
    """A word, and what it may be the plural of."""
    if word.endswith("ies"):
        return word, f"{word[:-3]}y"
    return (word, word.removesuffix("es"), word.removesuffix("s"))
