"""What looks at fewer documents finds the same: against the plain sum over all documents, to the last bit."""

import functools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from webshop_server.catalog.catalog import MemoryCatalog
from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.search import ranking
from webshop_server.search.build import K1, B, coarse_lengths, document_text
from webshop_server.search.index import SearchIndex
from webshop_server.search.ranking import Term, best, largest_of_blocks, number_of_blocks
from webshop_server.text.analyzer import tokens


@dataclass(frozen=True)
class Shelf:
    """As much of a catalogue as an index needs."""

    listed: Sequence[Product]
    hash: str = "5eed" * 16
    folder: Path | None = None

    def products(self) -> Sequence[Product]:
        return self.listed

    def __len__(self) -> int:
        return len(self.listed)


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


def drawn_products(count: int, words: int, seed: int) -> list[Product]:
    """Products of words that follow Zipf's law, of all lengths, some equal and some without a word."""
    rng = np.random.default_rng(seed)
    often = 1 / np.arange(1, words + 1)
    titles = [
        " ".join(f"w{number}" for number in rng.choice(words, int(rng.lognormal(2, 1)), p=often / often.sum()))
        for _ in range(count)
    ]
    titles[count // 2 :: 7] = titles[: len(titles[count // 2 :: 7])]
    numbers = rng.permutation(count).tolist()
    return [
        Product(f"P{number:04d}", title, "c", f"phrase {number % 5}", f"path {number % 3}")
        for number, title in zip(numbers, titles, strict=True)
    ]


def queries(products: Sequence[Product], count: int, seed: int) -> list[str]:
    """Words of products, frequent and rare, repeated and unknown ones; also none at all."""
    draw = random.Random(seed)
    texts = [document_text(product) for product in products]
    made = ["", "the of", "unknownword", texts[0]]
    for _ in range(count):
        words = draw.choice(texts).split() or ["w1"]
        some = [draw.choice(words) for _ in range(draw.randint(1, 12))]
        made.append(" ".join(some + some[: draw.choice((0, 0, 1, 3))] + draw.choice(([], ["w1", "w2"], ["nowhere"]))))
    return made


@functools.cache
def drawn_shelf(count: int, words: int, seed: int) -> tuple[list[Product], PlainSum]:
    """Drawn products and their plain sum; the `bounds` change neither."""
    products = drawn_products(count, words, seed)
    return products, PlainSum(products)


@functools.cache
def generated_shop(count: int) -> tuple[MemoryCatalog, PlainSum]:
    """A generated shop and its plain sum; the `bounds` change neither."""
    catalog = MemoryCatalog("shop", synthetic_products(count, seed=count), 0)
    return catalog, PlainSum(list(catalog.products()))


@pytest.fixture(params=["as it is", "not small", "small blocks"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a catalogue of a test is a large one: many blocks, and no query is short."""
    if request.param != "as it is":
        monkeypatch.setattr(ranking, "SMALL", 0)
    if request.param == "small blocks":
        for name, value in {"BLOCK": 8, "FEW": 0, "_FIRST": 4, "_AT_ONCE": 32}.items():
            monkeypatch.setattr(ranking, name, value)


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize(("count", "words", "seed"), [(2, 3, 0), (40, 10, 1), (700, 60, 2), (2500, 4000, 3)])
def test_rankings_of_drawn_texts_equal_the_plain_sum(count: int, words: int, seed: int) -> None:
    products, plain = drawn_shelf(count, words, seed)
    index = SearchIndex.build(Shelf(products))
    for query in queries(products, 60, seed):
        for limit in (1, 7, 50, count):
            assert index.scores(query, limit) == plain.scores(query, limit), (query, limit)


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("count", [30, 3000])
def test_rankings_of_a_generated_shop_equal_the_plain_sum(count: int) -> None:
    catalog, plain = generated_shop(count)
    index, products = SearchIndex.build(catalog), list(catalog.products())
    asked = [text for product in products[:: count // 15] for text in (product.title, product.instruction) if text]
    for query in (*asked, *queries(products, 40, 0)):
        for limit in (10, 50):
            assert index.search(query.split(" "), limit) == [asin for asin, _ in plain.scores(query, limit)]
            assert index.scores(query, limit) == plain.scores(query, limit), (query, limit)
    for special in ("<r> red", "<q> lip balms", f"<q> {products[0].query}", f"<c> {products[0].category}"):
        whole = [product.asin for product in products if f"<q> {product.query}" == special]
        whole = whole or [product.asin for product in products if f"<c> {product.category}" == special]
        if whole:
            assert list(index.search(special.split(" "))) == whole  # in the order of the catalogue, not of the index


def drawn_terms(rng: np.random.Generator, size: int, count: int) -> list[Term]:
    """Terms of all frequencies, whose parts are of sizes so different that the order of a sum shows in its last bit."""
    terms = []
    for _ in range(count):
        documents = np.flatnonzero(rng.random(size) < rng.choice([0.01, 0.1, 0.5, 1.0])).astype(np.int32)
        documents = documents if len(documents) else np.array([size - 1], np.int32)
        steps = np.sort(rng.random(rng.choice([3, 200])) * 10.0 ** rng.integers(-7, 2)).astype(np.float32)
        gains = np.append(np.float32(0), steps)
        codes = rng.integers(0, len(gains), len(documents)).astype(np.uint16)  # 0: of a very long document
        frequent = rng.random() < 0.5
        blocks = largest_of_blocks(documents, codes, number_of_blocks(size)) if frequent else None
        terms.append(Term(documents, codes, gains, blocks))
    return terms


def plain_best(terms: Sequence[Term], size: int, limit: int) -> dict[int, float]:
    """The documents that `best` must give, one addition after the other."""
    totals = np.zeros(size)
    for term in terms:
        totals[term.documents] += term.gains[term.codes]
    scores: NDArray[np.float32] = totals.astype(np.float32)
    last = np.sort(scores)[::-1][min(limit, size) - 1]
    return {number: float(score) for number, score in enumerate(scores) if score > 0 and score >= last}


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("seed", range(6))
def test_sums_of_any_parts_equal_the_plain_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for size in (1, 9, 300, 20_000):
        scratch = np.zeros(size, np.float32)
        for limit in (1, 3, 50):
            terms = drawn_terms(rng, size, int(rng.integers(1, 9)))
            documents, scores = best(terms, limit, scratch)
            assert len(set(documents.tolist())) == len(documents)
            assert dict(zip(documents.tolist(), scores.tolist(), strict=True)) == plain_best(terms, size, limit)
            assert not scratch.any()


def test_few_postings_are_read_where_few_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it: a rare word leaves nothing for a frequent one to decide but what it is looked up for."""
    size = 100_000
    every, code = np.arange(size, dtype=np.int32), np.ones(size, np.uint16)
    rare = np.arange(0, size, 500, dtype=np.int32)
    gains = [np.array([0, top], np.float32) for top in (5.0, 0.1)]
    terms = [
        Term(every, code, gains[1], np.ones(number_of_blocks(size), np.uint16)),
        Term(rare, code[: len(rare)], gains[0], None),
    ]
    added: list[int] = []
    add = ranking._add
    monkeypatch.setattr(ranking, "_add", lambda term, totals: added.append(len(term.documents)) or add(term, totals))
    documents, scores = best(terms, 50, np.zeros(size, np.float32))
    assert sorted(documents.tolist()) == rare.tolist()
    assert set(scores.tolist()) == {float(np.float32(np.float64(np.float32(0.1)) + 5.0))}
    assert sum(added) < size / 5
