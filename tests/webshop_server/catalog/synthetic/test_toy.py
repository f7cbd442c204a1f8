"""The toy shop: each product findable by its title, unlike all others, and asked for in many ways."""

import re
from collections import Counter
from itertools import product as combinations

import pytest

from webshop_server.catalog.synthetic.toy import COLORS, KINDS, SIZES, toy_products
from webshop_server.goals.reward import RewardMode
from webshop_server.server.app import open_shop

PRODUCTS = tuple(toy_products())
NAMES = {kind.query: kind.name for kind in KINDS}


def test_there_is_one_of_each() -> None:
    made = Counter((product.query, *product.attributes[:2]) for product in PRODUCTS)
    colors = "black white red blue green gray yellow brown".split()
    wanted = combinations(("shoes", "clothing", "accessories"), colors, "small medium large xlarge".split())
    assert made == Counter(dict.fromkeys(wanted, 1))
    assert len(PRODUCTS) == 8 * 4 * 3 == 96


def test_prices_are_whole_cents_in_the_range() -> None:
    prices = [product.pricing for product in PRODUCTS]
    assert all(len(price) == 1 and 20 <= price[0] <= 150 and round(price[0], 2) == price[0] for price in prices)
    assert len(set(prices)) > 90


@pytest.mark.parametrize("seed", range(5))
def test_identifiers_and_order_say_nothing(seed: int) -> None:
    products = list(toy_products(seed))
    assert len({product.asin for product in products}) == 96
    for words in (COLORS, SIZES, [kind.name for kind in KINDS]):
        assert not any(word.lower() in product.asin.lower() for word in words for product in products)
    in_order = sorted(products, key=lambda product: product.asin)
    neighbors = sum(first.query == second.query for first, second in zip(in_order, in_order[1:], strict=False))
    assert 15 < neighbors < 50
    assert len({product.query for product in products[:12]}) == 3


def test_the_title_has_what_search_needs() -> None:
    for product in PRODUCTS:
        color, size, material, _ = product.attributes
        words = set(re.findall("[a-z]+", product.title.lower()))
        assert {color, size, material, NAMES[product.query]} <= words


@pytest.mark.parametrize("formula", ["fixed", "webshop"])
def test_a_request_is_solved_by_its_product_and_no_other(formula: RewardMode) -> None:
    """The published formula takes "large" for "xlarge", and a noun that two kinds share for the same kind."""
    shop = open_shop("toy", human_goals=True)
    products = tuple(shop.catalog.products())  # with prices
    for goal in shop.goals:
        parts = {product.asin: shop.buy(goal, product, {}, formula) for product in products}
        assert [asin for asin, scored in parts.items() if scored.success] == [goal.asin], goal.instruction
        assert {(one.query == goal.query, parts[one.asin].r_type) for one in products} == {(True, 1.0), (False, 0.0)}


def test_kinds_share_no_noun() -> None:
    nouns = {kind.query: {kind.name, *kind.materials} for kind in KINDS}
    for product in PRODUCTS:
        assert product.nouns is not None
        assert set(product.nouns) <= nouns[product.query]
    assert sum(map(len, nouns.values())) == len(set().union(*nouns.values()))


def test_there_are_enough_different_requests() -> None:
    said = [human.text for product in PRODUCTS for human in product.human_instructions]
    assert len(said) == len(set(said)) == 384
    for product in PRODUCTS:
        named = {human.attributes for human in product.human_instructions}
        color, size, material, feature = product.attributes
        asked = (color, f"{size} size")
        assert named == {asked, (*asked, material), (*asked, feature), (*asked, material, feature)}
        for human in product.human_instructions:
            assert all(attribute.removesuffix(" size") in human.text for attribute in human.attributes)


def test_one_is_as_it_should_be() -> None:
    product = PRODUCTS[0]
    assert product.title == "Xlarge Red Wool Clothing"
    assert product.nouns == ("wool", "clothing")
    assert product.instruction == "Find me an xlarge red wool clothing item"
    assert product.instruction_attributes == ("red", "xlarge size", "wool")
    assert "an xlarge red clothing item with elastic waist" in product.human_instructions[2].text


def test_materials_and_features_are_spread_evenly() -> None:
    pairs = Counter((product.query, *product.attributes[2:]) for product in PRODUCTS)
    assert set(pairs.values()) == {2}
    assert len(pairs) == 48
