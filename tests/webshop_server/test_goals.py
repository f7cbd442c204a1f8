"""Goals and splits, worked by hand, in memory and in files."""

import dataclasses
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.webshop_server.products import shelf
from webshop_server.catalog import Catalog, open_catalog
from webshop_server.catalog.product import HumanInstruction, Product
from webshop_server.goals import goals as goals_module
from webshop_server.goals.goals import (
    MAX_CHOICES,
    NO_PRICE_BOUND,
    SPLITS,
    Goal,
    Goals,
    make_goals,
    price_bound,
    split_goals,
)


def item(asin: str, **fields: object) -> Product:
    plain = Product(asin, title=f"Title {asin}", category="c", query="q", product_category="p", options={})
    return dataclasses.replace(plain, **fields)  # type: ignore[arg-type]


LAMP = item(
    "LAMP",
    options={"size": ("small", "large"), "color": ("red", "navy | red", "blue")},
    instruction="Find me a lamp",
    instruction_attributes=("dimmable", "wood"),
    pricing=(1000.0,),
    nouns=("lamp",),
)
DESK = item("DESK", options={}, instruction="Find me a desk", instruction_attributes=("wood",), pricing=(975.0,))
PLAIN = item("PLAIN", options={})
CHAIR = item(
    "CHAIR",
    options={"color": ("red", "blue")},
    pricing=(1000.0,),
    human_instructions=(
        HumanInstruction("a red chair...", ("comfy",), ("red",)),
        HumanInstruction("a chair", (), ("blue",)),
        HumanInstruction("any chair.", ("cheap",), ()),
    ),
)


def in_catalogue_order(goals: Goals) -> list[Goal]:
    """The goals as the catalogue has them, before the shuffle."""
    order = list(range(len(goals)))
    random.Random(233).shuffle(order)
    return [goals[order.index(position)] for position in range(len(goals))]


def values_of(goal: Goal) -> tuple[str, ...]:
    """The option values that a goal asks for."""
    return tuple(value for _, value in goal.asked)


def test_synthetic_goals_are_all_choices_of_sorted_options() -> None:
    goals = make_goals(shelf(LAMP, PLAIN, DESK), human=False)
    made = in_catalogue_order(goals)
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


def test_a_product_of_too_many_choices_has_goals_from_everywhere() -> None:
    """Regression: six lists of 40 values, four billion choices, took all memory."""
    options = {f"option {letter}": tuple(f"{letter}{number}" for number in range(40)) for letter in "abcdef"}
    many = item("MANY", options=options, instruction="Find", instruction_attributes=("wood",))
    goals = make_goals(shelf(many, DESK), human=False)
    assert len(goals) == MAX_CHOICES + 1
    made = in_catalogue_order(goals)
    assert values_of(made[0]) == ("a0", "b0", "c0", "d0", "e0", "f0")
    assert values_of(made[1]) == ("a24", "b28", "c34", "d7", "e0", "f19")  # 0.618033989 * 40 ** 6 in base 40, and a bit
    chosen = zip(*map(values_of, made[:-1]), strict=True)
    assert [set(values) for values in chosen] == [set(values) for values in options.values()]
    assert len({values_of(goal) for goal in made}) == MAX_CHOICES + 1


def test_human_goals_have_values_alone_and_weigh_alike() -> None:
    made = in_catalogue_order(make_goals(shelf(LAMP, CHAIR), human=True))
    assert [(goal.instruction, goal.attributes, goal.options, goal.weight) for goal in made] == [
        ("a red chair", ("comfy",), ("red",), 1.0),
        ("any chair", ("cheap",), (), 1.0),
    ]


def test_bounds_that_can_be_drawn_are_above_the_price_and_never_change() -> None:
    for price, bounds in ((29.46, {40.0, 50.0, 60.0}), (30.0, {50.0, 60.0, 70.0}), (985.0, {NO_PRICE_BOUND})):
        assert {price_bound(price, key) for key in range(300)} == bounds
    # Written down once: another process, Python or machine must draw the same.
    drawn = [price_bound(29.46, "hash", 0, f"B{number}", False, 0) for number in range(8)]
    assert drawn == [40.0, 60.0, 40.0, 50.0, 50.0, 40.0, 60.0, 50.0]


def test_a_bound_is_above_the_price_of_the_options_asked_for() -> None:
    lamp = item(
        "B", pricing=(20.0,), instruction="x", instruction_attributes=("y",),
        options={"color": ("red", "gold")}, option_prices={"red": 5.0, "gold": 90.0},
    )  # fmt: skip
    bounds = {values_of(goal)[0]: goal.price_upper for goal in make_goals(shelf(lamp), human=False)}
    assert 40.0 <= bounds["red"] <= 60.0
    assert 110.0 <= bounds["gold"] <= 130.0


def test_goals_are_drawn_by_weight() -> None:
    goals = make_goals(shelf(LAMP, DESK), human=False)
    rng = np.random.default_rng(0)
    drawn = Counter(goals[goals.sample(rng)].asin for _ in range(4000))
    # The six lamps weigh (1/6 + 1/7) / 2 each, which is 13/14 in all, and the desk 2/14.
    assert drawn["DESK"] / 4000 == pytest.approx(2 / 15, abs=0.02)
    assert {goals.sample(random.Random(seed), "test") for seed in range(20)} == set(goals.split("test"))


def test_splits_by_hand_and_their_sizes() -> None:
    # 12 goals: room for 2, 4 and 6. Product 7 (3 goals) fits into eval, 5 (6 goals) into train, 9 (2) into test and
    # 4 (1) into what is left of eval.
    split = split_goals([7, 7, 7, 5, 9, 9, 5, 4, 5, 5, 5, 5])
    assert {part: list(numbers) for part, numbers in split.items()} == {
        "all": [*range(12)], "test": [0, 1], "eval": [2, 3, 4, 5], "train": [6, 7, 8, 9, 10, 11],
        "test_by_product": [4, 5],
        "eval_by_product": [0, 1, 2, 7],
        "train_by_product": [3, 6, 8, 9, 10, 11],
    }
    # The sizes are the published ones or their shares.
    sizes = {12: (2, 4, 6), 13: (2, 4, 7), 3: (1, 1, 1), 2: (0, 0, 2), 3000: (500, 1000, 1500), 6910: (500, 1000, 5410)}
    for goals, parts in sizes.items():
        split = split_goals(range(goals))
        assert tuple(len(split[part]) for part in ("test", "eval", "train")) == parts


def opened(folder: Path, **options: Any) -> Catalog:
    """A catalogue that counts as a large one."""
    return open_catalog("synthetic:400", cache_dir=folder, max_in_memory=0, **options)


def everything(goals: Goals) -> tuple[object, ...]:
    """All goals, all splits, and draws from each."""
    drawn = [[goals.sample(random.Random(seed), name) for seed in range(30)] for name in SPLITS]
    return list(goals), [list(goals.split(name)) for name in SPLITS], drawn


def test_goals_from_a_file_are_those_made_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = everything(make_goals(open_catalog("synthetic:400"), human=False))
    assert everything(make_goals(opened(tmp_path), human=False)) == made
    monkeypatch.setattr(goals_module, "_make_arrays", lambda *_: pytest.fail("the goals were made again"))
    again = make_goals(opened(tmp_path), human=False)
    assert everything(again) == made
    assert type(again[3].weight) is float and type(again.split("test_by_product")[0]) is int


def test_processes_that_find_nothing_build_each_file_once(tmp_path: Path) -> None:
    """Regression: each process built its own search index and goals, all but one for nothing."""
    code = (
        "import sys; from webshop_server.catalog import catalog; from webshop_server.goals import goals\n"
        "from webshop_server.search import index; from webshop_server.store.shop import open_shop\n"
        "catalog.open_catalog.__kwdefaults__['max_in_memory'] = 0\n"
        "def noted(function, name):\n"
        "    def outer(*arguments):\n"
        "        with open(sys.argv[2], 'a') as file: file.write(name + '\\n')\n"
        "        return function(*arguments)\n"
        "    return outer\n"
        "for module, name in ((catalog, 'write_products'), (index, '_make_arrays'), (goals, '_make_arrays')):\n"
        "    setattr(module, name, noted(getattr(module, name), module.__name__.split('.')[-1]))\n"
        "print(open_shop('synthetic:600', cache_dir=sys.argv[1]).about())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), str(tmp_path / "notes")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=120)[0] for process in running}
    assert len(said) == 1
    assert "'products': 600" in said.pop()
    assert sorted((tmp_path / "notes").read_text().split()) == ["catalog", "goals", "index"]
