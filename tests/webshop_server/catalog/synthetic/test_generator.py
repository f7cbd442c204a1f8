"""The synthetic shop: same from the same seed, sound in every product, and worth reading."""

import itertools
from collections import Counter

from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.catalog.synthetic.vocabulary import shelves

PRODUCTS = tuple(synthetic_products(2000))


def searched(product: Product) -> str:
    """What the original's search sees of the texts."""
    return f"{product.title} {product.description} {product.bullet_points[0]}".lower()


def test_products_do_not_depend_on_how_many_there_are() -> None:
    assert list(synthetic_products(30)) == list(PRODUCTS[:30])
    assert list(itertools.islice(synthetic_products(10**9), 5)) == list(PRODUCTS[:5])
    assert list(synthetic_products(30, seed=1)) != list(PRODUCTS[:30])


def test_identifiers_are_different() -> None:
    assert len({product.asin for product in PRODUCTS}) == 2000


def test_every_shelf_is_filled() -> None:
    filled = Counter(product.query for product in PRODUCTS)
    assert set(filled) == {kind.query for _, _, kind in shelves()}
    assert min(filled.values()) >= 10
    departments = Counter(product.category for product in PRODUCTS)
    assert all(300 < count < 500 for count in departments.values())


def test_every_property_can_be_read_and_many_only_on_the_page() -> None:
    for product in PRODUCTS:
        whole = " ".join((product.title, product.description, *product.bullet_points)).lower()
        assert all(attribute in whole for attribute in product.attributes)
        assert 3 <= len(product.attributes) == len(set(product.attributes)) <= 6
    wanted = [(attribute, product) for product in PRODUCTS for attribute in product.instruction_attributes]
    in_title = sum(attribute in product.title.lower() for attribute, product in wanted) / len(wanted)
    found = sum(attribute in searched(product) for attribute, product in wanted) / len(wanted)
    assert 0.1 < in_title < 0.4
    assert 0.5 < found < 0.75


def test_titles_know_their_nouns() -> None:
    for product in PRODUCTS:
        words = product.title.lower().replace(",", "").split()
        assert product.nouns is not None
        left = iter(words)
        assert all(noun in left for noun in product.nouns), "nouns stand in the order of the title"
        assert 2 <= len(product.nouns) <= len(words)
        assert "*" not in product.title + "".join(product.bullet_points) + product.description


def test_options_and_prices_fit_together() -> None:
    combos = Counter[int]()
    for product in PRODUCTS:
        values = [value for shown in product.options.values() for value in shown]
        assert len(values) == len(set(values))
        assert set(product.option_prices) <= set(values)
        ends = (
            (min(product.option_prices.values()), max(product.option_prices.values()))
            if product.option_prices
            else None
        )
        assert product.pricing == (ends if ends and ends[0] < ends[1] else product.pricing[:1])
        assert all(1 <= price < 2500 and round(price, 2) == price for price in product.pricing)
        combos[len(product.options)] += 1
    assert combos[0] > 500
    assert combos[1] > 400
    assert combos[2] > 400
    assert sum(len(product.pricing) == 2 for product in PRODUCTS) > 300


def test_there_are_near_duplicates_that_differ_in_one_property() -> None:
    pairs = zip(PRODUCTS, PRODUCTS[1:], strict=False)
    alike = [(a, b) for a, b in pairs if a.query == b.query and len({*(a.nouns or ())} & {*(b.nouns or ())}) > 2]
    different = Counter(len(set(a.attributes) - set(b.attributes)) for a, b in alike)
    assert len(alike) > 700
    # None where the same property was exchanged for the same other one: they differ in price or options.
    assert set(different) <= {0, 1, 2}
    assert different[0] < 0.15 * len(alike)
    assert 0.6 < len({product.title for product in PRODUCTS}) / 2000 < 0.9


def test_requests_name_what_they_ask_for() -> None:
    asking = [product for product in PRODUCTS if product.instruction is not None]
    assert 1100 < len(asking) < 1300
    for product in asking:
        assert product.instruction is not None
        assert product.query in product.instruction
        assert 1 <= len(product.instruction_attributes) <= 3
        assert set(product.instruction_attributes) <= set(product.attributes)
        assert all(attribute in product.instruction for attribute in product.instruction_attributes)
        assert product.instruction[-1].isalpha()
    quiet = [product for product in PRODUCTS if product.instruction is None]
    assert all(product.instruction_attributes == () for product in quiet)


def test_the_first_product_is_as_it_was() -> None:
    first = PRODUCTS[0]
    assert first.asin == "B09HG291FN"
    assert first.title == "Non Slip Kelwell Counter Stool Orchard"
