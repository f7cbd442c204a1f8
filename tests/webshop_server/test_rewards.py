"""Rewards and tiers, worked by hand, and goals and rewards of the public set, compared with the original's."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.webshop_server import products
from webshop_server.catalog import Catalog, open_catalog
from webshop_server.goals.goals import Goal, make_goals
from webshop_server.goals.nouns import noun_tagger
from webshop_server.goals.reward import (
    Closeness,
    RewardMode,
    RewardParts,
    closeness,
    fuzzy_match,
    kind_match,
    options_met,
    score,
)
from webshop_server.goals.tiers import EventKind, Progress, TierEvent, nearness, pay, tier


def test_a_match_is_rounded_before_it_is_compared() -> None:
    # 2 * 6 / 14 = 85.71 is rounded to 86, which is more than 85; 2 * 11 / 26 = 84.6 is not.
    assert fuzzy_match("abcdefg", "abcdefx")
    assert not fuzzy_match("abcdefghijkuv", "abcdefghijkxy")


@pytest.mark.parametrize(
    ("wanted", "chosen", "expected"),
    [
        ("Large ", "large", Closeness.EQUAL),
        ("", "red", Closeness.DIFFERENT),
        ("grey stripes", "gray stripe", Closeness.SAME_WORDS),
        ("black | white", "white/black", Closeness.SAME_WORDS),
        ("10 x 20", "20 x 10", Closeness.DIFFERENT),
        ("large", "x-large", Closeness.DIFFERENT),
        ("+1.50", "-1.50", Closeness.DIFFERENT),
        # Colours, which are similar in an option that is called so.
        ("black", "matte black", Closeness.SIMILAR_COLOUR),
        ("light pink", "pink, light dotted", Closeness.SIMILAR_COLOUR),
        ("light blue", "light green", Closeness.DIFFERENT),
        ("pink", "light pink", Closeness.DIFFERENT),
        ("black", "black | white", Closeness.DIFFERENT),
    ],
)
def test_closeness(wanted: str, chosen: str, expected: Closeness) -> None:
    assert closeness(wanted, chosen, "color") is closeness(chosen, wanted, "color") is expected
    plain = Closeness.DIFFERENT if expected is Closeness.SIMILAR_COLOUR else expected
    assert closeness(wanted, chosen) is closeness(chosen, wanted) is plain


SHIRT = dataclasses.replace(
    products.SHIRT,
    attributes=("machine wash",),
    options={"color": ("red", "blue", "sky blue"), "size": ("large", "x-large")},
    option_prices={"x-large": 35.0},
    price=25.0,
)
GOAL = products.goal_of(
    SHIRT, attributes=("machine wash", "cool", "warm"), price_upper=30.0, options={"color": "red", "size": "large"}
)


def goal(**changes: object) -> Goal:
    return dataclasses.replace(GOAL, **changes)  # type: ignore[arg-type]


def scored(
    chosen: Mapping[str, str], wanted: Goal = GOAL, mode: RewardMode = "fixed", price: float = 25.0
) -> RewardParts:
    return score(SHIRT, chosen, wanted, noun_tagger("every_word"), mode, price)


@pytest.mark.parametrize("mode", ["webshop", "fixed"])
def test_parts_and_success_by_hand(mode: RewardMode) -> None:
    parts = scored({"color": "red", "size": "large"}, mode=mode)
    # "machine wash" is an attribute, "cool" is in a bullet point, "warm" is nowhere: 2 + 2 + 1 of 3 + 2 + 1.
    assert parts.total == 5 / 6
    assert not parts.success
    assert (parts.attributes_met, parts.options_met) == ((True, True, False), (True, True))
    assert parts.as_info() == {
        "r_type": 1.0, "query_match": True, "category_match": True, "title_score": 1.0,
        "r_att": 2 / 3, "w_att": 3 / 6, "r_option": 1.0, "w_option": 2 / 6, "r_price": True, "w_price": 1 / 6,
        "mode": mode, "nouns": "every_word",
    }  # fmt: skip
    # Success is everything.
    wanted = goal(attributes=("machine wash", "cool", "soft", "linen"))
    assert scored({"color": "red", "size": "large"}, wanted, mode).total == 1.0
    assert scored({"color": "red", "size": "large"}, wanted, mode).success
    assert scored({"color": "red"}, wanted, mode).total == 6 / 7
    assert scored({"color": "red", "size": "large"}, wanted, mode, price=30.0).total == 1.0
    assert scored({"color": "red", "size": "large"}, wanted, mode, price=30.01).total == 6 / 7


@pytest.mark.parametrize(
    ("nouns", "shared", "query", "r_type"),
    [
        (5, 1, "other", 0.5),  # 0.2 is not more than 0.2
        (5, 1, "shirts", 1.0),
        (10, 1, "other", 0.5),  # 0.1 is not less than 0.1
        (11, 1, "shirts", 0.1),
        (0, 0, "other", 0.5),  # a title without nouns counts as 0.2
    ],
)
def test_title_thresholds(nouns: int, shared: int, query: str, r_type: float) -> None:
    names = tuple(f"n{number}" for number in range(nouns))
    product = dataclasses.replace(SHIRT, nouns=names[:shared], query=query, product_category="Clothing")
    assert kind_match(product, goal(nouns=names), noun_tagger()).r_type == r_type


def test_a_repeated_noun_counts_once_in_fixed() -> None:
    wanted = goal(name="box box box box")
    box = dataclasses.replace(SHIRT, title="box", query="x", product_category="x")
    assert kind_match(box, wanted, noun_tagger("every_word"), "webshop").title_score == 0.25
    assert kind_match(box, wanted, noun_tagger("every_word"), "fixed").title_score == 1.0


@pytest.mark.parametrize(
    ("wanted", "chosen", "webshop", "fixed"),
    [
        # (a) An option's own value is not recognised, because only one side is reduced to a colour.
        ({"color": "fashion black woman"}, {"color": "fashion black woman"}, False, True),
        # (b) Others are taken for it.
        ({"size": "x-large"}, {"size": "large"}, True, False),
        ({"size": "x-large"}, {"fit": "size"}, True, False),
        (("light blue", "light pink"), {"color": "light pink"}, False, False),
        (("red",), {"color": "covered"}, True, False),
        # Both agree.
        ({"color": "navy | red"}, {"color": "navy | red"}, True, True),
        (("red",), {"color": "matte red"}, True, True),
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


def test_a_phrase_counts_on_neighbouring_shelves() -> None:
    def right(at: str, wanted: str, query: str = "desk lamps") -> bool:
        product = dataclasses.replace(SHIRT, asin="B0", query="desk lamps", product_category=at)
        return nearness(product, goal(query=query, product_category=wanted)) == 1

    assert right("Home › Lighting › Lamps › Floor Lamps", "Home › Lighting › Lamps › Desk Lamps")
    assert right("Home › Lighting › Lamps", "Home › Lighting › Lamps › Desk Lamps")
    assert not right("Home › Lighting › Lamps › Floor Lamps", "Home › Lighting › Lamps › Desk Lamps", "lamps")
    assert not right("Home › Lighting › Lamps › Floor › Tall", "Home › Lighting › Lamps › Desk Lamps")
    assert not right("Home › Lighting › Bulbs", "Home › Lighting › Lamps")
    assert not right("", "Home › Lighting › Lamps") and not right("Home › Lighting › Lamps", "")
    assert right("", "") and not right("", "", "lamps")


INVALID, IDLE = TierEvent("invalid"), TierEvent("idle")
SHARES = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1))
EVENTS = st.builds(TierEvent, kind=st.sampled_from(get_args(EventKind)), match=SHARES, options=SHARES, score=SHARES)
HONEST = (TierEvent("search", match=1), TierEvent("open", match=1))


def play(*events: TierEvent) -> tuple[Progress, list[float]]:
    """The end of an episode and what each of its steps was paid."""
    progress, credits = Progress(), []
    for event in events:
        progress, credit = pay(progress, event)
        credits.append(credit)
    return progress, credits


@pytest.mark.parametrize(
    ("events", "worth"),
    [
        ((TierEvent("open", match=0.5), TierEvent("choose", match=0.5, options=1)), 0.2),
        (HONEST, 0.4),
        ((*HONEST, TierEvent("choose", match=1, options=1)), 0.5),
        ((*HONEST, TierEvent("buy", match=1, score=0.5)), 0.65),
        ((*HONEST, TierEvent("buy", match=1, score=1)), 1.0),
        ((TierEvent("search", match=1), TierEvent("buy", match=0.5, score=0.4)), 0.3),
        ((TierEvent("buy", match=1, score=0.9),), 0.2),  # blind
    ],
)
def test_worth_of_an_episode(events: tuple[TierEvent, ...], worth: float) -> None:
    progress, credits = play(*events)
    assert progress.best == pytest.approx(worth)
    assert sum(credits) == pytest.approx(worth)


@given(st.lists(EVENTS, max_size=30))
def test_credits_add_up_to_the_best_tier(events: list[TierEvent]) -> None:
    progress, credits = play(*events)
    assert min(credits, default=0) >= 0
    assert sum(credits) == pytest.approx(progress.best)
    assert progress.best <= max((tier(event, found=True) for event in events), default=0)
    assert 0 <= progress.best <= 1


@given(st.lists(EVENTS, max_size=10), EVENTS, st.integers(1, 20))
def test_a_thing_done_again_pays_nothing(before: list[TierEvent], event: TierEvent, times: int) -> None:
    _, credits = play(*before, event, *[event] * times)
    assert credits[len(before) + 1 :] == [0.0] * times


@given(SHARES, st.floats(0, 1, exclude_max=True), st.lists(st.sampled_from([INVALID, IDLE]), max_size=5))
def test_a_blind_purchase_never_beats_honest_search(match: float, score: float, before: list[TierEvent]) -> None:
    blind, _ = play(*before, TierEvent("buy", match=match, score=score))
    assert blind.best <= 0.2 < play(HONEST[0])[0].best < play(*HONEST)[0].best


@pytest.fixture(scope="module")
def catalog(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The public products."""
    return open_catalog(real_data, cache_dir=tmp_path_factory.mktemp("cache"))


def lines(path: Path) -> list[dict[str, object]]:
    """The records of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_number_and_order_of_goals(catalog: Catalog, real_data: Path) -> None:
    goals = make_goals(catalog, human=False)
    assert len(goals) == 6910
    assert [goals[n].asin for n in range(5)] == ["B0743JKHBV", "B09QCP4579", "B099WH1RTM", "B09LSKQF8C", "B09M63B87V"]
    assert len(make_goals(catalog, human=True)) == 13
    played = [episode["goal"] for episode in lines(real_data / "text_env_traj_golden_30.jsonl")]
    by_place = {(goal.asin, json.dumps(goal.options)): goal for goal in goals}
    for goal in played:
        assert isinstance(goal, dict)
        ours = by_place[goal["asin"], json.dumps(goal["goal_options"])]
        assert ours.weight == goal["weight"]
        assert ours.attributes == tuple(goal["attributes"])
        assert (ours.query, ours.name) == (goal["query"], goal["name"])
        # The original draws the price again in each process; what is before it is not.
        assert ours.instruction.partition(", and price")[0] == goal["instruction_text"].partition(", and price")[0]
