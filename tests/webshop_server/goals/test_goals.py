"""Goals of a catalogue of a few products, worked by hand."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.webshop_server.goals import values_of
from webshop_server.catalog.product import HumanInstruction, Product
from webshop_server.goals.goals import (
    NO_PRICE_BOUND,
    GoalError,
    Goals,
    UnknownGoalError,
    make_goals,
    price_bound,
    price_with,
    prices,
)


class Shelf:
    """A catalogue of a list."""

    def __init__(self, *products: Product, content: str = "shelf", seed: int = 0) -> None:
        self.hash = content
        self.seed = seed
        self._products = products

    @property
    def asins(self) -> Sequence[str]:
        return [product.asin for product in self._products]

    def product(self, asin: str) -> Product:
        return self._products[self.asins.index(asin)]

    def products(self) -> Iterator[Product]:
        return iter(self._products)


def item(asin: str, **fields: object) -> Product:
    plain = Product(asin, title=f"Title {asin}", category="c", query="q", product_category="p", options={})
    return dataclasses.replace(plain, **fields)  # type: ignore[arg-type]


LAMP = item(
    "LAMP",
    options={"size": ("small", "large"), "color": ("red", "navy | red", "blue")},
    instruction="Find me a lamp",
    instruction_attributes=("dimmable", "wood"),
    price=1000.0,
    nouns=("lamp",),
)
DESK = item("DESK", options={}, instruction="Find me a desk", instruction_attributes=("wood",), price=975.0)
PLAIN = item("PLAIN", options={})
CHAIR = item(
    "CHAIR",
    options={"color": ("red", "blue")},
    price=1000.0,
    human_instructions=(
        HumanInstruction("a red chair...", ("comfy",), ("red",)),
        HumanInstruction("a chair", (), ("blue",)),
        HumanInstruction("any chair.", ("cheap",), ()),
    ),
)


def in_catalogue_order(goals: Goals) -> list[int]:
    """For each goal as the catalogue has it, its number after the shuffle."""
    order = list(range(len(goals)))
    random.Random(233).shuffle(order)
    return [order.index(position) for position in range(len(goals))]


def test_synthetic_goals_are_all_choices_of_sorted_options() -> None:
    goals = make_goals(Shelf(LAMP, PLAIN, DESK), human=False)
    made = [goals[number] for number in in_catalogue_order(goals)]
    assert [goal.instruction for goal in made] == [
        "Find me a lamp with color: red, and size: small",
        "Find me a lamp with color: red, and size: large",
        "Find me a lamp with color: navy | red, and size: small",
        "Find me a lamp with color: navy | red, and size: large",
        "Find me a lamp with color: blue, and size: small",
        "Find me a lamp with color: blue, and size: large",
        "Find me a desk, and price lower than 990.00 dollars",
    ]
    assert made[3].options == {"color": "navy | red", "size": "large"}
    assert list(made[3].options) == ["color", "size"]
    assert (made[0].asin, made[0].name, made[0].nouns) == ("LAMP", "Title LAMP", ("lamp",))
    assert (made[0].price_upper, made[6].price_upper) == (NO_PRICE_BOUND, 990.0)
    # "dimmable" is in 6 goals, "wood" in 7.
    assert made[0].weight == (1 / 6 + 1 / 7) / 2
    assert made[6].weight == 1 / 7
    assert [goal.id for goal in goals] == list(range(7))


def test_human_goals_have_values_alone_and_weigh_alike() -> None:
    goals = make_goals(Shelf(LAMP, CHAIR), human=True)
    made = [goals[number] for number in in_catalogue_order(goals)]
    assert [(goal.instruction, goal.attributes, goal.options, goal.weight) for goal in made] == [
        ("a red chair", ("comfy",), ("red",), 1.0),
        ("any chair", ("cheap",), (), 1.0),
    ]


def test_a_seed_gives_another_order() -> None:
    shelf = Shelf(LAMP, DESK)
    orders = [[goal.instruction for goal in make_goals(shelf, human=False, seed=seed)] for seed in (233, 233, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize(
    ("price", "bounds"),
    [
        (29.46, {40.0, 50.0, 60.0}),
        (30.0, {50.0, 60.0, 70.0}),  # a bound is above the price
        (0.01, {20.0, 30.0, 40.0}),
        (965.0, {980.0, 990.0}),
        (975.0, {990.0}),
        (985.0, {NO_PRICE_BOUND}),
        (4299.99, {NO_PRICE_BOUND}),
    ],
)
def test_bounds_that_can_be_drawn(price: float, bounds: set[float]) -> None:
    assert {price_bound(price, key) for key in range(300)} == bounds


def test_bounds_are_distributed_as_published() -> None:
    drawn = Counter(price_bound(29.46, "key", key) for key in range(6000))
    # The larger of two of 30, 40, 50 and 60: 1, 2 and 3 of the 6 pairs. 6000 draws: a deviation of 120 is 3 sigma.
    assert abs(drawn[40.0] - 1000) < 120
    assert abs(drawn[50.0] - 2000) < 120
    assert abs(drawn[60.0] - 3000) < 120


def test_bounds_never_change() -> None:
    # Written down once: another process, Python or machine must draw the same.
    assert [price_bound(29.46, "hash", 0, f"B{number}", False, 0) for number in range(8)] == BOUNDS_OF_8


BOUNDS_OF_8 = [40.0, 60.0, 40.0, 50.0, 50.0, 40.0, 60.0, 50.0]


def test_a_bound_depends_on_content_seed_and_product() -> None:
    lamps = [item(f"B{n}", price=29.46, instruction="x", instruction_attributes=("y",)) for n in range(40)]

    def bounds(content: str, seed: int) -> dict[str, float]:
        shelf = Shelf(*lamps, content=content, seed=seed)
        return {goal.asin: goal.price_upper for goal in make_goals(shelf, human=False)}

    assert bounds("a", 0) == bounds("a", 0)
    assert bounds("a", 0) != bounds("b", 0)
    assert bounds("a", 0) != bounds("a", 1)
    assert set(bounds("a", 0).values()) == {40.0, 50.0, 60.0}


def test_all_goals_of_a_product_share_their_bound_as_published() -> None:
    lamp = item("B", price=29.46, instruction="x", instruction_attributes=("y",), options={"n": tuple("abcdefgh")})
    assert len({goal.price_upper for goal in make_goals(Shelf(lamp), human=False)}) == 1


def test_the_dearest_option_makes_the_price() -> None:
    lamp = item("B", price=20.0, option_prices={"gold": 90.0, "s": 25.0})
    assert price_with(lamp, ["red"]) == 20.0
    assert price_with(lamp, ["red", "s"]) == 25.0
    assert price_with(lamp, ["gold", "s"]) == 90.0
    assert (prices(lamp), prices(item("B", price=20.0))) == ((90.0, 25.0, 20.0), (20.0,))


def test_without_a_priced_option_a_range_costs_its_lower_end_and_bounds_stay() -> None:
    """Regression: it cost a number drawn from the range, which is on no page."""
    ranged: dict[str, Any] = {"price": 57.0, "pricing": (90.0, 20.0), "instruction": "x"}
    lamp = item("B", **ranged, instruction_attributes=("y",), options={"n": ("a",)})
    assert price_with(lamp, ["a"]) == 20.0 and prices(lamp) == (20.0,)
    assert {goal.price_upper for goal in make_goals(Shelf(lamp), human=False)} <= {70.0, 80.0, 90.0}


def test_a_bound_is_above_the_price_of_the_options_asked_for() -> None:
    lamp = item(
        "B", price=20.0, instruction="x", instruction_attributes=("y",),
        options={"color": ("red", "gold")}, option_prices={"red": 5.0, "gold": 90.0},
    )  # fmt: skip
    bounds = {values_of(goal)[0]: goal.price_upper for goal in make_goals(Shelf(lamp), human=False)}
    assert 40.0 <= bounds["red"] <= 60.0
    assert 110.0 <= bounds["gold"] <= 130.0


@pytest.mark.parametrize("number", [-1, 7, 10**9])
def test_an_unknown_goal_is_refused(number: int) -> None:
    goals = make_goals(Shelf(LAMP, DESK), human=False)
    with pytest.raises(UnknownGoalError, match=f"there is no goal {number}; the goals are 0 to 6"):
        goals[number]


def test_numpy_numbers_are_numbers() -> None:
    goals = make_goals(Shelf(LAMP, DESK), human=False)
    assert goals[np.int64(3)].id == 3  # type: ignore[index]
    with pytest.raises(TypeError):
        goals["3"]  # type: ignore[index]


def test_a_catalogue_without_requests_is_refused() -> None:
    with pytest.raises(GoalError, match="no human requests; for generated ones: human_goals=False"):
        make_goals(Shelf(LAMP), human=True)
    with pytest.raises(GoalError, match="no generated requests; for human ones: human_goals=True"):
        make_goals(Shelf(CHAIR), human=False)


def test_a_request_without_attributes_is_refused() -> None:
    with pytest.raises(GoalError, match="product B: instruction 'find me' has no attributes"):
        make_goals(Shelf(item("B", instruction="find me")), human=False)


def test_splits() -> None:
    many = [item(f"B{n}", instruction="x", instruction_attributes=("y",), options={"n": ("a", "b")}) for n in range(30)]
    goals = make_goals(Shelf(*many), human=False)
    assert goals.splits() == {
        "all": 60, "test": 10, "eval": 20, "train": 30,
        "test_by_product": 10, "eval_by_product": 20, "train_by_product": 30,
    }  # fmt: skip
    assert goals.split("eval") == range(10, 30)
    assert goals.split("all") == range(60)
    names = ("test_by_product", "eval_by_product", "train_by_product")
    parts = [{goals[number].asin for number in goals.split(name)} for name in names]
    assert [len(part) for part in parts] == [5, 10, 15]
    assert len(set.union(*parts)) == 30
    with pytest.raises(GoalError, match="split 'dev' is unknown; use one of all, test"):
        goals.split("dev")


def test_goals_are_drawn_by_weight() -> None:
    goals = make_goals(Shelf(LAMP, DESK), human=False)
    rng = np.random.default_rng(0)
    drawn = Counter(goals[goals.sample(rng)].asin for _ in range(4000))
    # The six lamps weigh (1/6 + 1/7) / 2 each, which is 13/14 in all, and the desk 2/14.
    assert drawn["DESK"] / 4000 == pytest.approx(2 / 15, abs=0.02)
    assert {goals.sample(random.Random(seed), "test") for seed in range(20)} == set(goals.split("test"))


def test_an_empty_split_cannot_be_drawn_from() -> None:
    goals = make_goals(Shelf(DESK), human=False)
    with pytest.raises(GoalError, match="split 'test' of 1 goals is empty"):
        goals.sample(random.Random(0), "test")
    assert goals.sample(random.Random(0), "train") == 0
