"""From text to terms: possessives, case, stop words and stems together, and the thousand real documents."""

import json
import random
from pathlib import Path

import pytest

from webshop_server.catalog.product import Product
from webshop_server.search.build import document_text
from webshop_server.text import analyzer
from webshop_server.text.analyzer import STOP_WORDS, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Women's Running SHOES for the gym", ["women", "run", "shoe", "gym"]),
        ("it's The dog\u2019S cat\uff07s s' 's", ["dog", "cat", "s", "s"]),  # "it" is a stop word once its 's is gone
        ("to be or not to be", []),
        ('machine-washable, 100% cotton; 28" x 28"', ["machin", "washabl", "100", "cotton", "28", "x", "28"]),
        ("T\u00dcR \u0130stanbul \u039f\u03a3", ["t\u00fcr", "istanbul", "\u03bf\u03c3"]),  # no final sigma
        ("color: red, and size: x-large", ["color", "red", "size", "x", "larg"]),
        ("\u2605 4.5 stars_only", ["\u2605", "4.5", "stars_onli"]),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_parts_between_blanks_have_the_terms_of_the_whole() -> None:
    """Also where a blank is beside what ties characters together: marks, joiners, connectors, a long word."""
    draw = random.Random(0)
    pieces = [*" \n\t\u202f\u00a0_.,:'\"#*1a", "shoes", "\u05d0", "\u0301", "\u200d", "\ufe0f", "\u20e3", "\U0001f469"]
    pieces += ["\U0001f1e9", "\u0e01", "\u30ab", "\u4e00", "x" * 300, " ", " ", "\u2139", "\ud800"]
    for _ in range(3000):
        text = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 12)))
        assert tokens(text) == list(analyzer._cut(text)), ascii(text)


def test_the_stop_words_are_lucenes_thirty_three() -> None:
    assert len(STOP_WORDS) == 33
    assert {"such", "their", "will", "no", "not"} <= STOP_WORDS
    assert STOP_WORDS.isdisjoint({"from", "i", "you", "have"})


def test_all_real_documents_have_lucenes_tokens(real_data: Path) -> None:
    expected = (real_data / "lucene_tokens_1000docs.txt").read_text(encoding="utf-8").split("\n")[:-1]
    wrong = []
    with (real_data / "webshop1k_products.jsonl").open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    for record, wanted in zip(records, expected, strict=True):
        product = Product(
            asin=record["asin"],
            title=record["Title"],
            category=record["category"],
            query=record["query"],
            product_category=record["product_category"],
            description=record["Description"],
            bullet_points=tuple(record["BulletPoints"]),
            options={name: tuple(values) for name, values in record["options"].items()},
        )
        if tokens(document_text(product)) != wanted.split():
            wrong.append(product.asin)
    assert len(records) == 1000
    assert wrong == []
