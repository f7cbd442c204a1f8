"""Ranking by hand-worked scores and by a slow, obvious loop; the special queries; the real rankings of Lucene."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from webshop_server.catalog.product import Product
from webshop_server.search import build as search_build
from webshop_server.search.build import coarse_lengths, document_text, special_keys
from webshop_server.search.index import SearchIndex, _Texts
from webshop_server.text.analyzer import tokens


@dataclass(frozen=True)
class Shelf:
    """As much of a catalogue as an index needs."""

    listed: Sequence[Product]
    hash: str = "5eed" * 16
    folder: Path | None = None

    def products(self) -> Iterator[Product]:
        yield from self.listed

    def __len__(self) -> int:
        return len(self.listed)


def product(asin: str, title: str, category: str = "fashion", query: str = "shoes", attributes: str = "") -> Product:
    words = tuple(attributes.split(", ")) if attributes else ()
    return Product(asin, title, category, query, "Clothing", attributes=words)


SHOES = Shelf([product("C", "red shoe"), product("A", "blue shoe"), product("B", "red red")])


def random_shelf(count: int, seed: int = 0) -> Shelf:
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("bcdfgaeio"), 5)) for _ in range(150)]
    often = 1 / np.arange(1, 151)
    titles = [
        " ".join(words[i] for i in rng.choice(150, int(rng.lognormal(3, 1)), p=often / often.sum()))
        for _ in range(count)
    ]
    return Shelf(
        [product(f"ID{number:04d}", title) for number, title in zip(rng.permutation(count), titles, strict=True)]
    )


def obvious_scores(shelf: Shelf, query: str) -> list[tuple[str, float]]:
    """The ranking one product and one term at a time, with Lucene's formula read aloud."""
    one, k1, b = np.float32(1), np.float32(0.9), np.float32(0.4)
    texts = {item.asin: Counter(tokens(document_text(item))) for item in shelf.listed}
    counted = sum(1 for terms in texts.values() if terms)
    average = np.float32(sum(terms.total() for terms in texts.values()) / counted)
    ranking = []
    for asin, terms in texts.items():
        length = np.float32(coarse_lengths(np.array([terms.total()]))[0])
        inverse_norm = one / (k1 * ((one - b) + b * length / average))
        total = 0.0
        for term, occurrences in Counter(tokens(query)).items():
            if term in terms:
                documents = sum(1 for other in texts.values() if term in other)
                inverse = np.float32(math.log(1 + (counted - documents + 0.5) / (documents + 0.5)))
                weight = np.float32(occurrences) * inverse
                total += float(weight - weight / (one + np.float32(terms[term]) * inverse_norm))
        if total > 0:
            ranking.append((asin, float(np.float32(total))))
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def test_scores_worked_by_hand() -> None:
    index = SearchIndex.build(SHOES)
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
    assert len(index) == 3


def test_lengths_are_as_coarse_as_a_byte() -> None:
    # Above 40 the length less 24 keeps four bits: 56 - 24 = 32 = 1000 in binary, two zeros after it.
    lengths = np.array([0, 1, 24, 39, 40, 41, 42, 55, 56, 59, 60, 100, 103, 104, 1000, 2**31 - 1])
    coarse = [0, 1, 24, 39, 40, 40, 42, 54, 56, 56, 60, 96, 96, 104, 984, 24 + 15 * 2**27]
    assert coarse_lengths(lengths).tolist() == coarse


def test_document_text_is_that_of_the_original() -> None:
    shirt = Product(
        "X",
        "A Shirt",
        "fashion",
        "q",
        "p",
        "Soft.",
        ("First", "Second"),
        options={"color": ("red", "b"), "size": ("s",)},
    )
    assert document_text(shirt) == "a shirt soft. first color: red, b, and size: s"
    assert document_text(product("X", "Hat")) == "hat   "


@pytest.mark.parametrize("seed", range(3))
def test_ranking_equals_the_obvious_loop(seed: int) -> None:
    shelf = random_shelf(300, seed)
    index = SearchIndex.build(shelf)
    rng = np.random.default_rng(seed)
    for _ in range(15):
        words = rng.choice(" ".join(item.title for item in shelf.listed).split(), rng.integers(1, 12))
        assert index.scores(" ".join(words), limit=300) == obvious_scores(shelf, " ".join(words))


def test_equal_scores_at_the_limit_go_by_identifier() -> None:
    numbers = np.random.default_rng(3).permutation(200)
    index = SearchIndex.build(Shelf([product(f"P{number:03d}", "red shoe") for number in numbers]))
    assert index.search(["red"]) == [f"P{number:03d}" for number in range(50)]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = random_shelf(100)
    whole = SearchIndex.build(shelf)
    monkeypatch.setattr(search_build, "_BLOCK", 40)  # a few documents each
    monkeypatch.setattr(search_build, "_IN_MEMORY", 100)  # the rest in a file
    parts = SearchIndex.build(shelf)
    queries = [item.title for item in shelf.listed]
    assert [parts.scores(query) for query in queries] == [whole.scores(query) for query in queries]


def test_threads_share_an_index() -> None:
    shelf = random_shelf(200)
    index = SearchIndex.build(shelf)
    queries = [item.title[:40] for item in shelf.listed]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(index.scores, queries)) == [index.scores(query) for query in queries]


def test_special_queries() -> None:
    shelf = Shelf(
        [
            product("Z", "sandal", "fashion", "beach shoes", "water proof, Red"),
            product("M", "lamp", "garden", "lamps", "red"),
            product("A", "boot", "fashion", "beach shoes"),
        ]
    )
    index = SearchIndex.build(shelf)
    assert list(special_keys(shelf.listed[0])) == ["<a> water proof", "<a> red", "<c> fashion", "<q> beach shoes"]
    assert list(index.search(["<a>", "water", "proof"])) == ["Z"]
    assert list(index.search(["<a>", "red"])) == ["Z", "M"]  # in the order of the catalogue
    assert list(index.search(["<c>", "fashion"], limit=1)) == ["Z", "A"]  # all of them, as in the original
    assert list(index.search(["<c>", "garden", "lamps"])) == ["M"]  # a category is one word
    assert list(index.search(["<q>", "beach", "shoes"])) == ["Z", "A"]
    assert list(index.search(["<q>", "beach"])) == list(index.search(["<a>"])) == list(index.search(["<c>"])) == []
    assert index.search(["boot", "<c>", "garden"]) == ["A"]  # elsewhere they are words: the brackets are none


def test_a_long_list_is_read_where_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a category of a million products was 236,000 texts, 78 ms and 14 MB, for a page of ten."""
    index = SearchIndex.build(Shelf([product(f"P{number:04d}", "lamp") for number in range(2000)]))
    read: list[int] = []
    decode = _Texts._bytes
    monkeypatch.setattr(_Texts, "_bytes", lambda self, number: read.append(number) or decode(self, number))
    found = index.search(["<c>", "fashion"])
    read.clear()
    assert (len(found), list(found[10:13]), found[-1]) == (2000, ["P0010", "P0011", "P0012"], "P1999")
    assert len(read) == 4


def test_random_query_depends_on_catalogue_and_words_alone() -> None:
    shelf = random_shelf(200)
    index = SearchIndex.build(shelf)
    sample = index.search(["<r>"])
    assert len(set(sample)) == 50
    assert set(sample) <= {item.asin for item in shelf.listed}
    assert sample == index.search(["<r>"]) == SearchIndex.build(shelf).search(["<r>"])
    assert sample != index.search(["<r>", "2"])
    assert sample != SearchIndex.build(Shelf(shelf.listed, hash="0" * 64)).search(["<r>"])
    assert sorted(SearchIndex.build(SHOES).search(["<r>"])) == ["A", "B", "C"]


def test_wrong_arguments_are_refused() -> None:
    index = SearchIndex.build(SHOES)
    with pytest.raises(ValueError, match="keywords='red shoe'.*list of words"):
        index.search("red shoe")
    with pytest.raises(ValueError, match="limit=0"):
        index.search(["red"], limit=0)


def test_a_catalogue_without_words_or_products() -> None:
    nothing = SearchIndex.build(Shelf([]))
    assert nothing.search(["red"]) == nothing.search(["<r>"]) == list(nothing.search(["<c>", "fashion"])) == []
    wordless = SearchIndex.build(Shelf([product("A", "the"), product("B", "")]))
    assert wordless.search(["the"]) == []
    assert list(wordless.search(["<c>", "fashion"])) == ["A", "B"]
    # Lucene does not count documents without a word: N is 1, and ln(1 + 0.5 / 1.5) / 1.9 is the score.
    mixed = SearchIndex.build(Shelf([product("A", "the"), product("B", "red")]))
    assert [(asin, round(score, 6)) for asin, score in mixed.scores("red")] == [("B", 0.151412)]


def test_half_surrogates_are_no_obstacle() -> None:
    index = SearchIndex.build(Shelf([product("A\ud800", "red \udfff shoe", attributes="\ud83d")]))
    assert index.search(["red", "\ud83d"]) == list(index.search(["<a>", "\ud83d"])) == ["A\ud800"]


def as_printed(scores: Sequence[float]) -> list[str]:
    """Scores as pyserini gives them: four decimals, and a millionth less for each that is as good as the one before."""
    printed: list[np.float32] = []
    equal = 0
    for score in scores:
        rounded = np.float32(math.floor(score * 10_000 + 0.5) / 10_000)
        equal = equal + 1 if printed and printed[-1] - rounded <= np.float32(1e-4) else 0
        printed.append(rounded - np.float32(1e-6) * np.float32(equal) if equal else rounded)
    return [f"{score:.6f}" for score in printed]


def test_all_real_rankings_are_lucenes_to_the_last_decimal(real_data: Path) -> None:
    listed = []
    with (real_data / "webshop1k_products.jsonl").open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            options = {name: tuple(values) for name, values in record["options"].items()}
            texts = (record["Title"], record["category"], record["query"], "", record["Description"])
            listed.append(Product(record["asin"], *texts, tuple(record["BulletPoints"]), options=options))
    index = SearchIndex.build(Shelf(listed))
    rankings = (real_data / "lucene_golden_top50_500q.tsv").read_text(encoding="utf-8").splitlines()
    wrong = []
    for query, ranking in (line.split("\t") for line in rankings):
        hits = index.scores(query)
        printed = as_printed([score for _, score in hits])
        if " ".join(f"{asin}:{score}" for (asin, _), score in zip(hits, printed, strict=True)) != ranking.strip():
            wrong.append(query)
    assert len(rankings) == 250
    assert wrong == []
