"""Which goals their own product solves."""

import dataclasses

import pytest

from tests.support.webshop_server.products import goal_of
from webshop_server.catalog import open_catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal, make_goals
from webshop_server.goals.nouns import NounTagger, noun_tagger
from webshop_server.goals.reward import RewardMode, score
from webshop_server.store.shop import open_shop
from webshop_server.store.winnable import can_be_clicked, own_options

CAP = Product(
    *("CAP", "Wool Cap", "fashion", "caps", "Caps"), attributes=("warm",), option_prices={"x-large": 45.0}, price=20.0,
    options={"color": ("navy | red", "1877black", "matte black", "black"), "size": ("large", "x-large")},
)  # fmt: skip
GOAL = goal_of(CAP, attributes=("warm",), price_upper=40.0)


def is_winnable(product: Product, goal: Goal, nouns: NounTagger, mode: RewardMode) -> bool:
    """Whether a goal's own product scores 1, those of its own options chosen that can be clicked."""
    return score(product, own_options(product, goal), goal, nouns, mode).success


@pytest.mark.parametrize(
    ("change", "webshop", "fixed"),
    [
        ({}, True, True),
        ({"options": {"color": "black", "size": "large"}}, True, True),
        ({"options": {"color": "1877black"}}, False, True),  # defect (a)
        ({"options": {"size": "x-large"}}, True, False),  # costs 45 where options have prices
        ({"options": ("green",)}, False, False),
        ({"attributes": ("warm", "dry")}, False, False),
    ],
)
def test_winnable(change: dict[str, object], webshop: bool, fixed: bool) -> None:
    goal = dataclasses.replace(GOAL, **change)  # type: ignore[arg-type]
    assert is_winnable(CAP, goal, noun_tagger("every_word"), "webshop") is webshop
    assert is_winnable(CAP, goal, noun_tagger("every_word"), "fixed") is fixed


def test_a_value_of_two_options_is_the_last_ones() -> None:
    both = dataclasses.replace(CAP, options={"color": ("natural", "red"), "scent": ("natural",)})
    clicked = [(name, value) for name in both.options for value in both.options[name]]
    assert [can_be_clicked(both, *pair) for pair in clicked] == [False, True, True]
    asked = dataclasses.replace(GOAL, options={"color": "natural", "scent": "natural"})
    assert own_options(both, asked) == {"scent": "natural"}


@pytest.mark.parametrize(("catalog", "human"), [("toy", False), ("toy", True), ("synthetic:300", False)])
def test_all_goals_of_the_bundled_catalogues_can_be_won(catalog: str, human: bool) -> None:
    products, nouns = open_catalog(catalog), noun_tagger()
    for goal in make_goals(products, human=human):
        assert is_winnable(products.product(goal.asin), goal, nouns, "fixed"), goal.instruction


@pytest.mark.parametrize("formula", ["fixed", "webshop"])
def test_a_request_is_solved_by_its_product_and_no_other(formula: RewardMode) -> None:
    """The published formula takes "large" for "xlarge", and a noun that two kinds share for the same kind."""
    shop = open_shop("toy", human_goals=True)
    products = tuple(shop.catalog.products())  # with prices
    for goal in list(shop.goals)[::2]:
        parts = {product.asin: shop.buy(goal, product, {}, formula) for product in products}
        assert [asin for asin, scored in parts.items() if scored.success] == [goal.asin], goal.instruction
        assert {(one.query == goal.query, parts[one.asin].r_type) for one in products} == {(True, 1.0), (False, 0.0)}
