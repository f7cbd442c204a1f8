"""Which goals their own product solves."""

import dataclasses

import pytest

from webshop_server.catalog import open_catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal, make_goals
from webshop_server.goals.nouns import EveryWord, PrecomputedNouns
from webshop_server.goals.reward import RewardMode
from webshop_server.store.winnable import can_be_clicked, is_winnable, own_options

CAP = Product(
    asin="CAP",
    title="Wool Cap",
    category="fashion",
    query="caps",
    product_category="Caps",
    attributes=("warm",),
    options={"color": ("navy | red", "1877black", "matte black", "black"), "size": ("large", "x-large")},
    option_prices={"x-large": 45.0},
    price=20.0,
)
GOAL = Goal(0, "CAP", "fashion", "caps", "Wool Cap", "Caps", "", ("warm",), 40.0, {}, 1.0)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ({"color": "black"}, {"color": "black"}),
        (("large",), {"size": "large"}),
        (("x-large", "black"), {"size": "x-large", "color": "black"}),
        (("Navy/Red",), {"color": "navy | red"}),
        (("green", "large"), {"size": "large"}),
        ((), {}),
    ],
)
def test_own_options(wanted: dict[str, str] | tuple[str, ...], chosen: dict[str, str]) -> None:
    assert own_options(CAP, dataclasses.replace(GOAL, options=wanted)) == chosen


@pytest.mark.parametrize(
    ("change", "webshop", "fixed"),
    [
        ({}, True, True),
        ({"options": {"color": "black", "size": "large"}}, True, True),
        ({"options": {"color": "1877black"}}, False, True),  # defect (a)
        ({"options": {"size": "x-large"}}, True, False),  # costs 45 where options have prices
        ({"options": ("green",)}, False, False),
        ({"attributes": ("warm", "dry")}, False, False),
        ({"price_upper": 10.0}, False, False),
    ],
)
def test_winnable(change: dict[str, object], webshop: bool, fixed: bool) -> None:
    goal = dataclasses.replace(GOAL, **change)  # type: ignore[arg-type]
    answers: dict[RewardMode, bool] = {"webshop": webshop, "fixed": fixed}
    for mode, answer in answers.items():
        assert is_winnable(CAP, goal, EveryWord(), mode) is answer


@pytest.mark.parametrize(("catalog", "human"), [("toy", False), ("toy", True), ("synthetic:300", False)])
def test_all_goals_of_the_bundled_catalogues_can_be_won(catalog: str, human: bool) -> None:
    products, nouns = open_catalog(catalog), PrecomputedNouns()
    for goal in make_goals(products, human=human):
        assert is_winnable(products.product(goal.asin), goal, nouns, "fixed"), goal.instruction


@pytest.mark.parametrize(
    ("chosen", "answer"),
    [
        ({}, True),
        ({"color": "red"}, True),
        ({"color": "red [dark]"}, False),  # "click[red [dark]]" chooses "dark]"
        ({"style": "features"}, False),  # a button
        ({"style": "search"}, False),
        ({"style": "s"}, False),  # also a size, and the last one on the page wins
        ({"size": "s"}, True),
        ({"color": "red", "style": "buy now"}, False),
        ({"color": "navy | "}, True),  # as "Navy/" is read
        ({"size": ""}, False),
        ({"size": "a\tb"}, False),
        ({"cut": "slim"}, True),
        ({"cut": "slim "}, False),  # the click loses its blank, and chooses "slim"
    ],
)
def test_options_that_cannot_be_clicked(chosen: dict[str, str], answer: bool) -> None:
    options = {
        "color": ("red [dark]", "red", "navy | "),
        "style": ("features", "buy now", "search", "s"),
        "size": ("s", "m", "", "a\tb"),
        "cut": ("slim ", "slim"),
    }
    product = dataclasses.replace(CAP, options=options)
    clicked = {name: value for name, value in chosen.items() if can_be_clicked(product, name, value)}
    assert (clicked == chosen) is answer
    goal = dataclasses.replace(GOAL, options=chosen)
    assert own_options(product, goal) == clicked
    assert is_winnable(product, goal, EveryWord(), "fixed") is answer
