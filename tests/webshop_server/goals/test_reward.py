"""The reward by hand: what the published formula gives, and what the corrected one gives instead."""

import dataclasses
from collections.abc import Mapping

import pytest

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import NO_PRICE_BOUND, Goal
from webshop_server.goals.nouns import EveryWord, PrecomputedNouns
from webshop_server.goals.reward import RewardMode, RewardParts, kind_match, options_met, purchase_price, score

SHIRT = Product(
    asin="SHIRT",
    title="Acme Cotton Shirt",
    category="fashion",
    query="shirts",
    product_category="Clothing › Men › Shirts",
    description="Dries Quickly.",
    bullet_points=("Made in Peru", "Slim Fit"),
    attributes=("machine wash",),
    options={"color": ("red", "blue", "sky blue"), "size": ("large", "x-large")},
    option_prices={"x-large": 35.0},
    price=25.0,
)
GOAL = Goal(
    id=0,
    asin="SHIRT",
    category="fashion",
    query="shirts",
    name="Acme Cotton Shirt",
    product_category="Clothing › Men › Shirts",
    instruction="",
    attributes=("machine wash", "slim fit", "warm"),
    price_upper=30.0,
    options={"color": "red", "size": "large"},
    weight=1.0,
)


def goal(**changes: object) -> Goal:
    return dataclasses.replace(GOAL, **changes)  # type: ignore[arg-type]


def scored(
    chosen: Mapping[str, str], wanted: Goal = GOAL, mode: RewardMode = "fixed", price: float = 25.0
) -> RewardParts:
    return score(SHIRT, chosen, price, wanted, EveryWord(), mode)


@pytest.mark.parametrize("mode", ["webshop", "fixed"])
def test_all_parts(mode: RewardMode) -> None:
    parts = scored({"color": "red", "size": "large"}, mode=mode)
    # "machine wash" is an attribute, "slim fit" is in a bullet point, "warm" is nowhere: 2 + 2 + 1 of 3 + 2 + 1.
    assert parts.total == 5 / 6
    assert not parts.success
    assert (parts.attributes_met, parts.options_met) == ((True, True, False), (True, True))
    assert parts.as_info() == {
        "r_type": 1.0, "query_match": True, "category_match": True, "title_score": 1.0,
        "r_att": 2 / 3, "w_att": 3 / 6, "r_option": 1.0, "w_option": 2 / 6, "r_price": True, "w_price": 1 / 6,
        "mode": mode, "nouns": "every_word",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["webshop", "fixed"])
def test_success_is_everything(mode: RewardMode) -> None:
    wanted = goal(attributes=("machine wash", "peru", "dries quickly", "cotton"))
    assert scored({"color": "red", "size": "large"}, wanted, mode).total == 1.0
    assert scored({"color": "red", "size": "large"}, wanted, mode).success
    assert scored({"color": "red"}, wanted, mode).total == 6 / 7
    assert scored({"color": "red", "size": "large"}, wanted, mode, price=30.0).total == 1.0
    assert scored({"color": "red", "size": "large"}, wanted, mode, price=30.01).total == 6 / 7


def test_without_options_and_bound() -> None:
    parts = scored({}, goal(options={}, attributes=("warm",), price_upper=NO_PRICE_BOUND))
    assert (parts.total, parts.r_option, parts.r_price) == (0.5, None, True)
    assert "r_option" not in parts.as_info()


@pytest.mark.parametrize(
    ("title", "query", "category", "expected"),
    [
        ("Acme Cotton Shirt", "other", "Toys", (1.0, False, False, 1.0)),
        ("Shirt", "other", "Toys", (1.0, False, False, 1 / 3)),
        ("Shirt", "shirts", "Men › Clothing", (1.0, True, True, 1 / 3)),
        ("Lamp", "shirts", "Clothing › Men", (0.0, True, True, 0.0)),  # no noun in common: nothing else counts
    ],
)
def test_kind(title: str, query: str, category: str, expected: tuple[float, bool, bool, float]) -> None:
    product = dataclasses.replace(SHIRT, title=title, query=query, product_category=category)
    assert dataclasses.astuple(kind_match(product, GOAL, EveryWord())) == expected


@pytest.mark.parametrize(
    ("nouns", "shared", "query", "r_type"),
    [
        (5, 1, "other", 0.5),  # 0.2 is not more than 0.2
        (5, 1, "shirts", 1.0),
        (10, 1, "other", 0.5),  # 0.1 is not less than 0.1
        (11, 1, "shirts", 0.1),
        (4, 1, "other", 1.0),
        (0, 0, "other", 0.5),  # a title without nouns counts as 0.2
    ],
)
def test_title_thresholds(nouns: int, shared: int, query: str, r_type: float) -> None:
    names = tuple(f"n{number}" for number in range(nouns))
    product = dataclasses.replace(SHIRT, nouns=names[:shared], query=query, product_category="Men")
    assert kind_match(product, goal(nouns=names), PrecomputedNouns()).r_type == r_type


def test_a_repeated_noun_counts_once_in_fixed() -> None:
    wanted = goal(name="box box box box")
    box = dataclasses.replace(SHIRT, title="box", query="x", product_category="x")
    assert kind_match(box, wanted, EveryWord(), "webshop").title_score == 0.25
    assert kind_match(box, wanted, EveryWord(), "fixed").title_score == 1.0


@pytest.mark.parametrize(
    ("wanted", "chosen", "webshop", "fixed"),
    [
        # (a) An option's own value is not recognised, because only one side is reduced to a colour.
        ({"color": "fashion black woman"}, {"color": "fashion black woman"}, False, True),
        ({"color": "r.brown2070"}, {"color": "r.brown2070"}, False, True),
        # (b) Others are taken for it.
        ({"size": "x-large"}, {"size": "large"}, True, False),
        ({"size": "x-large"}, {"fit": "size"}, True, False),
        (("light blue", "light pink"), {"color": "light pink"}, False, False),
        (("light pink",), {"color": "light yellow"}, True, False),
        (("large",), {"size": "x-large"}, True, False),
        (("red",), {"color": "covered"}, True, False),
        # Both agree.
        ({"color": "navy | red"}, {"color": "navy | red"}, True, True),
        ({"color": "red"}, {"color": "red"}, True, True),
        ({"color": "red"}, {"color": "green"}, False, False),
        (("red",), {"color": "matte red"}, True, True),
        ({"size": "39x49in"}, {}, False, False),
    ],
)
def test_defects_of_options(
    wanted: Mapping[str, str] | tuple[str, ...], chosen: dict[str, str], webshop: bool, fixed: bool
) -> None:
    product = dataclasses.replace(SHIRT, options={name: (value,) for name, value in chosen.items()})
    assert all(options_met(product, chosen, goal(options=wanted), "webshop")) is webshop
    assert all(options_met(product, chosen, goal(options=wanted), "fixed")) is fixed


def test_the_closest_value_on_offer_is_meant() -> None:
    wanted = goal(options=("blue",))
    assert options_met(SHIRT, {"color": "sky blue"}, wanted) == (False,)  # "blue" itself was there to choose
    without = dataclasses.replace(SHIRT, options={"color": ("red", "sky blue")})
    assert options_met(without, {"color": "sky blue"}, wanted) == (True,)


def test_a_choice_meets_the_option_of_its_name() -> None:
    wanted = goal(options={"top": "red", "bottom": "blue"})
    product = dataclasses.replace(SHIRT, options={"top": ("red", "blue"), "bottom": ("red", "blue")})
    assert options_met(product, {"top": "blue", "bottom": "red"}, wanted) == (False, False)
    assert options_met(product, {"top": "blue", "bottom": "red"}, wanted, "webshop") == (True, True)
    # Another shop calls its options otherwise.
    other = dataclasses.replace(SHIRT, options={"upper": ("red",), "lower": ("blue",)})
    assert options_met(other, {"upper": "red", "lower": "blue"}, wanted) == (True, True)


def test_attributes_in_capitals_are_found_in_fixed() -> None:
    wanted = goal(attributes=("Slim Fit",), options={})
    assert scored({}, wanted, "webshop").attributes_met == (False,)
    assert scored({}, wanted, "fixed").attributes_met == (True,)


def test_price_of_a_purchase() -> None:
    assert purchase_price(SHIRT, {"size": "x-large"}, "webshop") == 25.0
    assert purchase_price(SHIRT, {"size": "x-large"}, "fixed") == 35.0
    assert purchase_price(SHIRT, {"size": "large"}, "fixed") == 25.0


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'tiered' is unknown; use one of webshop, fixed"):
        scored({}, mode="tiered")  # type: ignore[arg-type]
