"""Drawn texts are as long and as rich as the real ones that they were fitted to, and an index of them is a real one."""

import random
import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from measuring import large_shop, zipf_text
from measuring.real_products import PRODUCTS

from webshop_server.catalog import open_catalog
from webshop_server.goals.goals import make_goals
from webshop_server.search.build import document_text
from webshop_server.text.analyzer import tokens


@pytest.fixture(scope="module")
def drawn() -> list[list[int]]:
    """A thousand drawn documents."""
    return [
        document.tolist()
        for lengths, ranks in zipf_text.drawn_documents(1000, seed=5)
        for document in np.split(ranks, np.cumsum(lengths)[:-1])
    ]


def test_drawn_texts_are_those_of_the_fit(drawn: list[list[int]]) -> None:
    assert len(drawn) == 1000
    assert statistics.median(map(len, drawn)) == pytest.approx(np.exp(zipf_text.LOG_LENGTH[0]), rel=0.1)
    words = sum(map(len, drawn))
    assert len(set().union(*drawn)) == pytest.approx(zipf_text.expected_vocabulary(words), rel=0.03)
    # The frequent words are: rank r + 1 is drawn with probability (r + 1 + 80) ** -1.6 of the sum, 0.7 % for the first.
    first = Counter(rank for document in drawn for rank in document)[0] / words
    assert first == pytest.approx(zipf_text.probabilities()[0], rel=0.15)


def test_the_fit_meets_the_real_products(real_data: Path, tmp_path: Path) -> None:
    catalog = open_catalog(real_data / PRODUCTS, cache_dir=tmp_path)
    documents = [tokens(document_text(product)) for product in catalog.products()]
    logs = np.log([len(document) for document in documents])
    assert (logs.mean(), logs.std()) == pytest.approx(zipf_text.LOG_LENGTH, abs=1e-3)
    draw = random.Random(0)
    for count in (100, 300, 1000):  # how the vocabulary grows
        some = draw.sample(documents, count)
        expected = zipf_text.expected_vocabulary(sum(map(len, some)))
        assert len(set().union(*some)) == pytest.approx(expected, rel=0.12)
    frequent = Counter(term for document in documents for term in document).most_common(10)
    share = sum(count for _, count in frequent) / sum(map(len, documents))
    assert zipf_text.probabilities()[:10].sum() == pytest.approx(share, rel=0.05)
    goals = make_goals(catalog, human=False)
    asked = [len(set(tokens(goals[number].instruction))) for number in range(0, len(goals), 7)]
    assert (statistics.mean(asked), statistics.stdev(asked)) == pytest.approx(zipf_text.QUERY_TERMS, abs=0.5)


def test_searches_in_drawn_texts_equal_the_plain_sum(tmp_path: Path) -> None:
    index = zipf_text.build_index(tmp_path / "x.index", 3000, seed=0)
    queries = zipf_text.drawn_queries(20, seed=0)
    row = large_shop.compared(index, queries)
    assert (len(index), row["queries"], row["same"]) == (3000, 20, 20)
    assert 10 < statistics.mean(len(set(query.split())) for query in queries) < 30
    (best, score), *_ = index.scores(queries[0])
    assert best.startswith("Z0") and score > 0
