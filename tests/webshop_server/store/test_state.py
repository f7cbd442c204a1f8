"""The page state machine: every transition, the original's oddities in parity mode, and the public episodes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.webshop_server.products import MUG, SHIRT
from webshop_server.catalog.product import Product
from webshop_server.store.state import (
    INVALID,
    MAX_FILTERS,
    START,
    Filter,
    PageState,
    Store,
    parse_action,
    parse_filter,
    with_filter,
)

PLAIN = [
    Product(f"B00PLAIN{i:02}", f"Thing {i}", "garden", "things", "Home › Things", price=float(i)) for i in range(23)
]
PRODUCTS = {product.asin: product for product in (SHIRT, MUG, *PLAIN)}


def search(keywords: Sequence[str], limit: int = 50) -> list[str]:
    """Finds plain things for "things", the two others for anything else."""
    found = [product.asin for product in PLAIN] if keywords == ("things",) else [SHIRT.asin, MUG.asin]
    return found[:limit]


@pytest.fixture
def store() -> Store:
    catalog: Any = SimpleNamespace(product=PRODUCTS.__getitem__)
    index: Any = SimpleNamespace(search=search)
    return Store(catalog, index)


def play(store: Store, *actions: str, parity: bool = False) -> PageState:
    state = START
    for action in actions:
        state, event = store.act(state, action, parity=parity)
        assert event != INVALID, action
    return state


@given(st.text(alphabet="ab[]\n \r", max_size=14))
def test_splitting_agrees_with_the_original_expression(action: str) -> None:
    match = re.match(r"(.+)\[(.+)\]", action)
    assert parse_action(action) == (("", "") if match is None else match.groups())


def test_a_whole_visit(store: Store) -> None:
    state = START
    seen = []
    for action in (
        *("search[Red Shirt]", "click[b000shirt1]", "click[large]", "click[Dark Blue]", "click[small]"),
        *("click[Features]", "click[< prev]", "click[Buy Now]"),
    ):
        state, event = store.act(state, action)
        seen.append((event, state.kind))
    assert seen == [
        *(("searched", "results"), ("opened", "item"), ("chose", "item"), ("chose", "item"), ("chose", "item")),
        *(("read", "sub_page"), ("returned", "item"), ("bought", "done")),
    ]
    # An option keeps the place where it was first chosen.
    assert state == PageState(
        "done", ("red", "shirt"), 1, SHIRT.asin, (("size", "small"), ("color", "dark blue")), seen=(SHIRT.asin,)
    )


def test_an_invalid_action_changes_nothing_and_going_back_forgets(store: Store) -> None:
    results = play(store, "search[x]", "click[b000shirt1]", "click[red]", "click[< prev]")
    assert results == PageState("results", ("x",), 1, seen=(SHIRT.asin,))
    assert play(store, "search[x]", "click[b000shirt1]", "click[back to search]") == START
    state = play(store, "search[x]")
    for action in ("click[search]", "click[buy now]", "click[b00plain01]", "find[x]", "click[back]", "x"):
        assert store.act(state, action) == (state, INVALID)
    assert store.act(START, "click[search]", parity=True) == (START, INVALID)


def test_case_and_surrounding_blanks_matter_in_parity_only(store: Store) -> None:
    """Regression: beyond parity `Search[x]` and `click[ next > ]` were invalid, and a blank search was one."""
    plain = play(store, "search[things]", "click[next >]", "filter[price<9]", "click[b00plain03]", "click[buy now]")
    odd = (" Search[ things ]", "CLICK[ Next > ]", "Filter[ PRICE<9 ] ", "Click[ b00plain03 ]", " cliCK[Buy Now ]")
    assert play(store, *odd) == plain and plain.kind == "done"
    for blank in ("search[ ]", "Search[\t ]", "click[ ]", "filter[ ]", "buy[ ]"):
        assert store.act(START, blank) == (START, INVALID)
    results = play(store, "search[things]", parity=True)
    for action in ("Search[things]", " search[things]", "click[ next > ]", "Click[next >]"):
        assert store.act(results, action, parity=True) == (results, INVALID)
    assert play(store, "search[ things]", parity=True).keywords == ("", "things")
    assert play(store, "search[ ]", parity=True).kind == "results"


def test_pages_turn(store: Store) -> None:
    first = play(store, "search[things]")
    assert store.clickables(first)[:2] == ["back to search", "next >"]
    assert store.shown(first) == tuple(product.asin for product in PLAIN[:10])
    last = play(store, "search[things]", "click[next >]", "click[next >]")
    assert store.clickables(last) == ["back to search", "< prev", "b00plain20", "b00plain21", "b00plain22"]
    assert store.act(last, "click[next >]") == (last, INVALID)
    assert play(store, "search[things]", "click[next >]", "click[< prev]") == first


def test_of_two_options_with_one_value_the_last_is_chosen(store: Store) -> None:
    state = play(store, "search[x]", "click[b0000mug02]")
    assert store.clickables(state)[-3:] == ["red", "navy", "plain"]
    assert store.act(state, "click[red]")[0].options == (("style", "red"),)


def test_filters_narrow_add_up_and_replace_each_other(store: Store) -> None:
    state = play(store, "search[things]", "click[next >]", "filter[price<12]", "filter[price>=10]")
    assert state.page == 1
    assert store.results(state) == ("B00PLAIN10", "B00PLAIN11")
    cheapest = play(store, "search[things]", "filter[price<12]", "filter[Price <= $1]")
    assert store.results(cheapest) == ("B00PLAIN00", "B00PLAIN01")
    assert store.results(play(store, "search[x]", "filter[color=blue]")) == (SHIRT.asin,)
    assert store.results(play(store, "search[x]", "filter[category=Garden]")) == (MUG.asin,)
    assert store.results(play(store, "search[x]", "filter[color=blue]", "filter[all]")) == (SHIRT.asin, MUG.asin)
    # They are for results, beyond parity.
    results = play(store, "search[x]")
    assert store.act(results, "filter[price<50]", parity=True) == (results, INVALID)
    assert store.act(START, "filter[price<50]") == (START, INVALID)
    assert store.act(results, "filter[cheap]") == (results, INVALID)


WINE = replace(SHIRT, category="Fashion", product_category="Clothing › Men's Shirts", price=19.99)
WINE = replace(WINE, options={"color": ("wine red", "navy"), "fit type": ("men",)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price<50", Filter("price", "<", "50")),
        (" Price >= $49.50 ", Filter("price", ">=", "49.5")),
        ("price=0", Filter("price", "=", "0")),
        ("color = Dark Red", Filter("color", "=", "dark red")),
        ("fit type=men", Filter("fit type", "=", "men")),
        ("category<garden", None),
        ("price<cheap", None),
        ("price<-1", None),
        ("price<1e3", None),
        ("color=", None),
        ("=red", None),
        ("color", None),
        ("color=" + "x" * 100, None),
    ],
)
def test_filters_are_read(text: str, expected: Filter | None) -> None:
    assert parse_filter(text) == expected


def filters_of(*texts: str) -> list[Filter]:
    return [one for one in map(parse_filter, texts) if one is not None]


def test_filters_pass_what_fits() -> None:
    passing = filters_of(
        *("price<20", "price<=19.99", "category=fashion", "category=men's shirts", "color=red", "color=red wine")
    )
    others = filters_of("price>19.99", "category=shirts", "color=ed", "color=red navy", "size=large")
    assert [one.accepts(WINE) for one in (*passing, *others)] == [True] * 6 + [False] * 5


def test_a_filter_replaces_its_like_and_old_ones_go() -> None:
    filters: tuple[Filter, ...] = ()
    for one in filters_of("price<50", "color=red", "price>10", "price<=40", "color=blue"):
        filters = with_filter(filters, one)
    assert [str(one) for one in filters] == ["price>10", "price<=40", "color=blue"]
    for number in range(20):
        filters = with_filter(filters, Filter(f"option {number}", "=", "x"))
    assert len(filters) == MAX_FILTERS
