"""What every catalogue promises, on the form that lives in memory and the one in SQLite."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from webshop_server.catalog.catalog import Catalog, MemoryCatalog, UnknownProductError
from webshop_server.catalog.pricing import drawn_price
from webshop_server.catalog.records import content_hash
from webshop_server.catalog.sqlite import open_or_build
from webshop_server.catalog.synthetic.generator import synthetic_products

PRODUCTS = tuple(synthetic_products(60, seed=3))
Opener = Callable[[int], Catalog]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the products as a catalogue in one of the forms."""

    def open_it(seed: int) -> Catalog:
        if request.param == "memory":
            return MemoryCatalog("shop", PRODUCTS, seed)
        return open_or_build(tmp_path / "shop.sqlite", "key", "shop", seed, PRODUCTS)

    return open_it


def test_it_is_a_mapping_in_the_order_of_the_source(opened: Opener) -> None:
    catalog = opened(0)
    order = [product.asin for product in PRODUCTS]
    assert list(catalog) == list(catalog.asins) == order
    assert [product.asin for product in catalog.products()] == order
    assert len(catalog) == 60
    assert order[7] in catalog
    assert "nowhere" not in catalog
    assert catalog[order[7]] == catalog.product(order[7])


def test_products_are_those_of_the_source_with_their_price_drawn(opened: Opener) -> None:
    catalog = opened(4)
    assert catalog.hash == content_hash(PRODUCTS)
    for expected, product in zip(PRODUCTS, catalog.products(), strict=True):
        assert product.price == drawn_price(catalog.hash, 4, product.asin, product.pricing)
        assert product == catalog.product(product.asin)
        assert (product.title, product.options, product.nouns) == (expected.title, expected.options, expected.nouns)


def test_both_forms_are_the_same_catalogue(tmp_path: Path) -> None:
    memory = MemoryCatalog("a", PRODUCTS, 1)
    stored = open_or_build(tmp_path / "b.sqlite", "key", "b", 1, PRODUCTS)
    assert list(memory.products()) == list(stored.products())
    assert memory == stored
    assert len({memory, stored}) == 1


def test_another_seed_is_another_catalogue_with_other_prices(opened: Opener) -> None:
    first, second = opened(0), opened(1)
    assert first != second
    ranged = [product.asin for product in PRODUCTS if len(product.pricing) == 2]
    assert len(ranged) > 10
    assert sum(first[asin].price != second[asin].price for asin in ranged) > len(ranged) / 2


@pytest.mark.parametrize("asin", ["", "B0", "'; DROP TABLE products; --", "\ud800", "x" * 10_000, "a\0b", None, 7, [1]])
def test_an_unknown_product_is_a_named_error(opened: Opener, asin: str) -> None:
    catalog = opened(0)
    with pytest.raises(UnknownProductError, match="the catalogue shop has no product") as caught:
        catalog.product(asin)
    assert isinstance(caught.value, KeyError)
    assert repr(asin) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_copies_are_the_same_catalogue(opened: Opener) -> None:
    catalog = opened(2)
    assert copy.deepcopy(catalog) is catalog
    loaded = pickle.loads(pickle.dumps(catalog))
    assert loaded == catalog
    assert list(loaded.products()) == list(catalog.products())


def test_threads_may_share_it(opened: Opener) -> None:
    catalog = opened(0)
    expected = list(catalog.products())
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: [catalog.product(p.asin) for p in expected] == expected, range(40)))
        assert all(pool.map(lambda _: list(catalog.products()) == expected, range(10)))


def test_it_says_what_it_is(opened: Opener) -> None:
    catalog = opened(0)
    assert f"shop: 60 products, hash {catalog.hash[:12]}, seed 0" in repr(catalog)


def test_an_asin_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="comes twice"):
        MemoryCatalog("shop", [PRODUCTS[0], PRODUCTS[0]], 0)
