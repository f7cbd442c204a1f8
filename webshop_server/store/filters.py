"""Filters on a results page: `filter[price<50]`, `filter[category=fashion]`, `filter[color=red]`.

The original has none; people have them in every shop, so they exist beyond parity only. A filter looks at the first
`SEARCH_DEPTH` hits of a search or of a list such as `<c> fashion`, not only at the 50 that are shown; of `<r>`, at the
sample that is shown.
"""

import operator
import re
from dataclasses import dataclass
from typing import Literal, cast

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import prices

SEARCH_DEPTH = 500
MAX_FILTERS = 8
MAX_LENGTH = 100
_FILTER = re.compile(r"([^<>=]+)(<=|>=|<|>|=)([^<>=].*)", re.DOTALL)
_DOLLARS = re.compile(r"\$?(\d{1,7}(?:\.\d{1,2})?)", re.ASCII)
_WORD = re.compile(r"\w+")
_COLOURS = ("color", "colour")  # one filter, whichever of the two an option is called

Comparison = Literal["<", "<=", ">", ">=", "="]
_COMPARES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


@dataclass(frozen=True)
class Filter:
    """One condition on a product."""

    name: str  # "price", "category" or the name of an option, in lower case
    comparison: Comparison  # "=" unless the name is "price"
    value: str  # dollars without a sign ("49.5"), or text in lower case

    @property
    def slot(self) -> tuple[str, str]:
        """Filters with the same slot replace each other: there is one lower bound, one upper bound and one colour."""
        return self.name, self.comparison[0]

    def __str__(self) -> str:
        """As it is written in an action.

        >>> str(parse_filter("Price < $50"))
        'price<50'
        """
        return f"{self.name}{self.comparison}{self.value}"

    def accepts(self, product: Product) -> bool:
        """Whether `product` passes.

        Prices are those that a purchase may cost (`goals.prices`): where options have prices of their own, "<" looks
        for the cheapest and ">" for the dearest. The words of any other filter must all occur in one value of the
        option of that name or, where a product has no such option, in its title: much is sold in one colour only.
        """
        if self.name == "price":
            return any(_COMPARES[self.comparison](price, float(self.value)) for price in prices(product))
        if self.name == "category":
            return any(self.value == part for part in categories(product))
        wanted = set(_WORD.findall(self.value))
        names = _COLOURS if self.name in _COLOURS else (self.name,)
        texts = [value for name in names for value in product.options.get(name, ())] or [product.title.lower()]
        return any(wanted <= set(_WORD.findall(text)) for text in texts)


def categories(product: Product) -> tuple[str, ...]:
    """What `filter[category=…]` may say for a product: its department and each part of its path, in lower case."""
    path = (part.strip().lower() for part in product.product_category.split("›"))
    return product.category.lower(), *path


def parse_filter(text: str) -> Filter | None:
    """Reads what is in the brackets of `filter[…]`, whatever its case.

    What is not one gives None: no comparison, a price that is no number, "<" on something else.
    """
    match = _FILTER.fullmatch(text.lower()) if len(text) <= MAX_LENGTH else None
    if match is None:
        return None
    name, comparison, value = match[1].strip(), match[2], match[3].strip()
    name = _COLOURS[0] if name in _COLOURS else name
    if name != "price":
        return Filter(name, "=", value) if name and comparison == "=" and _WORD.search(value) else None
    dollars = _DOLLARS.fullmatch(value)
    if dollars is None:
        return None
    return Filter(name, cast(Comparison, comparison), f"{float(dollars[1]):.2f}".rstrip("0").rstrip("."))


def with_filter(filters: tuple[Filter, ...], added: Filter) -> tuple[Filter, ...]:
    """Adds a filter in place of the one in the same slot; the last `MAX_FILTERS` are kept."""
    return (*(old for old in filters if old.slot != added.slot), added)[-MAX_FILTERS:]
