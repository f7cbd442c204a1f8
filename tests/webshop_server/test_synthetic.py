"""The generated shop and the toy shop: the same from the same seed, and sound in every product."""

from collections import Counter
from itertools import product as combinations

import pytest

from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.catalog.synthetic.toy import toy_products
from webshop_server.catalog.synthetic.words import Draws
from webshop_server.goals.reward import RewardMode
from webshop_server.store.shop import open_shop


def test_draws_are_what_they_were() -> None:
    draws = Draws("key")
    assert [draws.below(1000) for _ in range(5)] == [865, 902, 930, 485, 390]
    assert [Draws("key").below(10**6)] != [Draws("yek").below(10**6)]


PRODUCTS = tuple(synthetic_products(2000))


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


TOYS = tuple(toy_products())


def test_there_is_one_of_each() -> None:
    made = Counter((product.query, *product.attributes[:2]) for product in TOYS)
    colors = "black white red blue green gray yellow brown".split()
    wanted = combinations(("shoes", "clothing", "accessories"), colors, "small medium large xlarge".split())
    assert made == Counter(dict.fromkeys(wanted, 1))
    assert len(TOYS) == 8 * 4 * 3 == 96


@pytest.mark.parametrize("formula", ["fixed", "webshop"])
def test_a_request_is_solved_by_its_product_and_no_other(formula: RewardMode) -> None:
    """The published formula takes "large" for "xlarge", and a noun that two kinds share for the same kind."""
    shop = open_shop("toy", human_goals=True)
    products = tuple(shop.catalog.products())  # with prices
    for goal in list(shop.goals)[::2]:
        parts = {product.asin: shop.buy(goal, product, {}, formula) for product in products}
        assert [asin for asin, scored in parts.items() if scored.success] == [goal.asin], goal.instruction
        assert {(one.query == goal.query, parts[one.asin].r_type) for one in products} == {(True, 1.0), (False, 0.0)}
