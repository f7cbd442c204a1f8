"""Ranking by hand, and against the plain sum over all documents to the last bit."""

import functools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.webshop_server.products import shelf
from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.search import index as index_module
from webshop_server.search.index import K1, B, SearchIndex, coarse_lengths, document_text, special_keys
from webshop_server.text.analyzer import tokens


class PlainSum:
    """Every document's score from its words: one row of counts a document, one column a term."""

    def __init__(self, products: Sequence[Product]) -> None:
        texts = [Counter(tokens(document_text(product))) for product in products]
        self._asins = [product.asin for product in products]
        self._columns = {term: number for number, term in enumerate(sorted(set().union(*texts)))}
        self._counts = np.zeros((len(texts), len(self._columns)), np.float32)
        for row, text in enumerate(texts):
            for term, count in text.items():
                self._counts[row, self._columns[term]] = count
        lengths = np.array([text.total() for text in texts])
        self._counted = int(np.count_nonzero(lengths))
        average = np.float32(lengths.sum() / self._counted)
        one = np.float32(1)
        self._norms = one / (K1 * ((one - B) + B * coarse_lengths(lengths).astype(np.float32) / average))
        self._ranked: dict[str, list[tuple[str, float]]] = {}

    def scores(self, query: str, limit: int) -> list[tuple[str, float]]:
        if query not in self._ranked:
            self._ranked[query] = self._rank(query)
        return self._ranked[query][:limit]

    def _rank(self, query: str) -> list[tuple[str, float]]:
        totals = np.zeros(len(self._asins))
        for term, occurrences in Counter(tokens(query)).items():
            if term in self._columns:
                counts = self._counts[:, self._columns[term]]
                found = int(np.count_nonzero(counts))
                weight = np.float32(occurrences) * np.float32(
                    math.log(1 + (self._counted - found + 0.5) / (found + 0.5))
                )
                totals += weight - weight / (np.float32(1) + counts * self._norms)
        found = [(asin, score) for asin, score in zip(self._asins, totals.astype(np.float32).tolist(), strict=True)]
        return sorted((pair for pair in found if pair[1] > 0), key=lambda pair: (-pair[1], pair[0]))


@functools.cache
def drawn_shelf(count: int) -> tuple[list[Product], PlainSum]:
    """Products of the generated shop, of which some are equal, and their plain sum; `look_ups` changes neither."""
    products = [*synthetic_products(count)]
    products += [replace(one, asin=f"A{number}") for number, one in enumerate(products[::7])]
    products.append(Product("EMPTY", "the of", "c", "q", "p"))
    return products, PlainSum(products)


def queries(products: Sequence[Product], count: int) -> list[str]:
    """Words of products, frequent and rare, repeated and unknown ones; also none at all."""
    draw = random.Random(count)
    texts = [document_text(product) for product in products]
    made = ["", "the of", "unknownword", texts[0]]
    for _ in range(count):
        words = draw.choice(texts).split()
        some = [draw.choice(words) for _ in range(draw.randint(1, 12))]
        others = draw.choice(([], ["for", "your"], ["nowhere"]))
        made.append(" ".join(some + some[: draw.choice((0, 0, 1, 3))] + others))
    return made


@pytest.fixture(params=[40, 0])
def look_ups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free look-ups are what a large catalogue makes of them: common words are never added up."""
    monkeypatch.setattr(index_module, "_LOOK_UP", request.param)


@pytest.mark.usefixtures("look_ups")
@pytest.mark.parametrize("count", [2, 40, 700])
def test_rankings_equal_the_plain_sum(count: int) -> None:
    products, plain = drawn_shelf(count)
    index = SearchIndex.open(shelf(*products))
    for query in queries(products, 30):
        for limit in (1, 7, 50, count):
            assert index.scores(query, limit) == plain.scores(query, limit), (query, limit)


def product(asin: str, title: str, category: str = "fashion", query: str = "shoes", attributes: str = "") -> Product:
    words = tuple(attributes.split(", ")) if attributes else ()
    return Product(asin, title, category, query, "Clothing", attributes=words)


SHOES = shelf(product("C", "red shoe"), product("A", "blue shoe"), product("B", "red red"))


def test_scores_worked_by_hand() -> None:
    index = SearchIndex.open(SHOES)
    # Three documents of the average length, so that the norm is k1. "blue": df 1, ln(1 + 2.5 / 1.5) = 0.9808, / 1.9.
    # "red": df 2, ln(1 + 1.5 / 2.5) = 0.4700, times 2 / 2.9 where it stands twice, 1 / 1.9 where it stands once.
    expected = [("A", 0.516226), ("B", 0.324140), ("C", 0.247370)]
    assert [(asin, round(score, 6)) for asin, score in index.scores("red blue")] == expected
    assert index.search(["red", "blue"]) == ["A", "B", "C"]
    assert index.search(["red", "blue"], limit=1) == ["A"]
    # A word that is asked for twice counts twice: "red" now beats "blue" where it stands twice.
    assert [round(score, 6) for _, score in index.scores("red blue red")] == [0.648281, 0.516226, 0.494741]
    assert index.search(["Reds!"]) == ["B", "C"]
    assert index.search(["shoe"]) == ["A", "C"]  # equal scores: by identifier, whatever the order of the catalogue
    assert index.search(["the"]) == index.search(["green"]) == index.search([""]) == index.search([]) == []


def test_lengths_are_as_coarse_as_a_byte() -> None:
    # Above 40 the length less 24 keeps four bits: 56 - 24 = 32 = 1000 in binary, two zeros after it.
    lengths = np.array([0, 1, 24, 39, 40, 41, 42, 55, 56, 59, 60, 100, 103, 104, 1000, 2**31 - 1])
    coarse = [0, 1, 24, 39, 40, 40, 42, 54, 56, 56, 60, 96, 96, 104, 984, 24 + 15 * 2**27]
    assert coarse_lengths(lengths).tolist() == coarse


def test_document_text_is_that_of_the_original() -> None:
    options = {"color": ("red", "b"), "size": ("s",)}
    shirt = Product("X", "A Shirt", "fashion", "q", "p", "Soft.", ("First", "Second"), options=options)
    assert document_text(shirt) == "a shirt soft. first color: red, b, and size: s"
    assert document_text(product("X", "Hat")) == "hat   "


def test_special_queries() -> None:
    listed = [
        product("Z", "sandal", "fashion", "beach shoes", "water proof, Red"),
        product("M", "lamp", "garden", "lamps", "red"),
        product("A", "boot", "fashion", "beach shoes"),
    ]
    index = SearchIndex.open(shelf(*listed))
    assert list(special_keys(listed[0])) == ["<a> water proof", "<a> red", "<c> fashion", "<q> beach shoes"]
    assert list(index.search(["<a>", "water", "proof"])) == ["Z"]
    assert list(index.search(["<a>", "red"])) == ["Z", "M"]  # in the order of the catalogue
    assert list(index.search(["<c>", "fashion"], limit=1)) == ["Z", "A"]  # all of them, as in the original
    assert list(index.search(["<c>", "garden", "lamps"])) == ["M"]  # a category is one word
    assert list(index.search(["<q>", "beach", "shoes"])) == ["Z", "A"]
    assert list(index.search(["<q>", "beach"])) == list(index.search(["<a>"])) == list(index.search(["<c>"])) == []
    assert index.search(["boot", "<c>", "garden"]) == ["A"]  # elsewhere they are words: the brackets are none
