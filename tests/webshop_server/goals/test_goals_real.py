"""Goals and rewards on the public set, compared with what the original made of it. Skips without the data."""

import json
from pathlib import Path

import pytest

from webshop_server.catalog import Catalog, open_catalog
from webshop_server.goals.goals import Goal, make_goals
from webshop_server.goals.matching import Closeness
from webshop_server.goals.nouns import EveryWord, NounTagger, RuleNouns
from webshop_server.goals.reward import RewardMode, option_closeness, score
from webshop_server.store.winnable import is_winnable


@pytest.fixture(scope="module")
def catalog(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The public products."""
    return open_catalog(real_data, cache_dir=tmp_path_factory.mktemp("cache"))


class OneNoun:
    """Finds the same noun in all titles, so that every product is of the right kind."""

    name = "one"

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        return ("thing",)


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


def test_parts_of_the_published_reward(catalog: Catalog, real_data: Path) -> None:
    records = lines(real_data / "reward_parts_golden_2000.jsonl")
    differing = []
    for record in records:
        wanted, chosen = record["goal"], record["options"]
        assert isinstance(wanted, dict) and isinstance(chosen, dict)
        own = catalog.product(wanted["asin"])
        options = wanted["goal_options"]
        goal = Goal(
            id=0,
            asin=own.asin,
            category=own.category,
            query=own.query,
            name=own.title,
            product_category=own.product_category,
            instruction="",
            attributes=tuple(wanted["attributes"]),
            price_upper=wanted["price_upper"],
            options=tuple(options) if isinstance(options, list) else options,
            weight=1.0,
        )
        bought, price = catalog.product(str(record["asin"])), record["price"]
        assert isinstance(price, int | float)
        parts = score(bought, chosen, price, goal, OneNoun(), "webshop")
        attributes, met = sum(parts.attributes_met), sum(parts.options_met)
        ours = {
            "query_match": parts.query_match,
            "category_match": parts.category_match,
            "num_attr": attributes,
            "num_opt": met,
            "r_option": parts.r_option,
            "r_price": parts.r_price,
            "reward_if_r_type_1": parts.total,
        }
        differing += [(record, ours)] if ours != {name: record[name] for name in ours} else []
    assert (len(records), differing) == (1000, [])


@pytest.mark.parametrize("nouns", [EveryWord(), RuleNouns()])
@pytest.mark.parametrize(("mode", "winnable"), [("webshop", 6452), ("fixed", 6910)])
def test_winnable_goals(catalog: Catalog, nouns: NounTagger, mode: RewardMode, winnable: int) -> None:
    won, wished = (
        [is_winnable(catalog.product(goal.asin), goal, nouns, mode) for goal in make_goals(catalog, human=human)]
        for human in (False, True)
    )
    assert sum(won) == winnable and all(wished)


def test_no_two_values_of_an_option_are_equal(catalog: Catalog) -> None:
    pairs = [
        (name, value, other)
        for product in catalog.products()
        for name, values in product.options.items()
        for value in values
        for other in values
        if value != other
    ]
    assert [pair for pair in pairs if option_closeness(pair[1], pair[0], pair[2]) is Closeness.EQUAL] == []
    assert len(pairs) > 30_000


def test_no_product_is_in_two_splits(catalog: Catalog) -> None:
    goals = make_goals(catalog, human=False)
    asins = [{goals[n].asin for n in goals.split(f"{name}_by_product")} for name in ("test", "eval", "train")]
    assert not (asins[0] & asins[1] or asins[0] & asins[2] or asins[1] & asins[2])
    assert [goals.splits()[f"{name}_by_product"] for name in ("test", "eval", "train")] == [500, 1000, 5410]
    # By index, as published, most products of the test goals are in training too.
    train = {goals[n].asin for n in goals.split("train")}
    test = {goals[n].asin for n in goals.split("test")}
    assert (len(test), len(test & train)) == (146, 125)
