"""What runs add to the models that they began with, by hand: over products, and where a warm start is not kept."""

from typing import Any

import pytest
from agents.products import products_asked_for
from agents.shops import ON_A_GPU, SHOPS
from pages.differences import began, difference_over_products, over_products, rate_over_products

from tests.support.pretrained_runs import MORNING, NOON, TRAINED, finished, page


def shop(name: str, outcomes: str, created: str, **more: Any) -> dict[str, Any]:
    game, stage = name.split("/")
    seed = 0 if "seed" in stage else None
    known = {"name": name, "game": game, "stage": stage.removesuffix("-seed0"), "seed": seed, "created": created}
    found = {"requests": {"model": {"success": outcomes.count("1") / len(outcomes)}}}
    settings = {"needs": None if seed is None else {"steps": []}}
    played = {"evaluations": {"sampled": found}, "outcomes": {"requests": outcomes}}
    return {**known, "settings": settings, **played, **more}


def test_requests_for_one_product_are_one_piece_of_evidence() -> None:
    """Four products of two requests each, of which training wins two products: +0.5, with t for three products."""
    products = [0, 0, 1, 1, 2, 2, 3, 3]
    before = shop("shop/warm_start", "00000000", MORNING)
    after = shop("shop/starpo_s-seed0", "11110000", NOON, began_with=MORNING)
    content = {"games": {"shop": {"products": {"requests": products}}}, "runs": {"a": before, "b": after}}
    lines = over_products(content, lambda run: run["name"])
    assert lines[0] == "| over 4 products | began at | at the end | difference |"
    # Wilson's interval of four coins; 3.182 · √(4/3 · 4 · 1² / 8²) is 0.92.
    assert lines[2:4] == [
        "| shop/warm_start |  | 0.00 [0.00, 0.49] |  |",
        "| shop/starpo_s-seed0 | 0.00 [0.00, 0.49] | 0.50 [0.15, 0.85] | +0.50 [-0.42, +1.42] |",
    ]


def test_products_that_one_of_two_models_has_not_played_are_not_compared() -> None:
    assert rate_over_products({}) == difference_over_products({}, {0: [1.0, 1], 1: [0.0, 1]}) == ""
    assert difference_over_products({0: [1.0, 1]}, {0: [1.0, 1]}) == ""  # one product has no spread


def test_a_run_whose_warm_start_is_not_kept_began_nowhere() -> None:
    """Regression: the downloaded model stood for it, so that a warm start's gain counted as the training's."""
    downloaded = finished("frozenlake/downloaded", 0.03)
    orphan = finished("frozenlake/starpo_s-seed0", 0.95, NOON, **TRAINED)
    text, content = page(downloaded, orphan)
    assert began(content, content["runs"]["frozenlake/starpo_s-seed0"], "held out") is None
    assert "| frozenlake/starpo_s-seed0 |  | 0.95 [0.90, 1.00] |  |" in text
    assert "| `starpo_s-seed0` | from a warm start whose result is not kept: 120 updates" in text


def test_a_greedy_row_whose_model_has_no_row_says_what_it_is() -> None:
    """Regression: it read "the same model" below the warm start's rows."""
    greedy = finished("frozenlake/astar_po_greedy-seed0", 0.8, NOON, began_with="lost")
    greedy["evaluations"] = {"greedy": greedy["evaluations"]["sampled"]}
    text, _ = page(finished("frozenlake/warm_start", 0.5), greedy)
    assert "| `astar_po-seed0`, greedy | from a warm start whose result is not kept: 60 updates" in text


def test_the_held_out_requests_ask_for_few_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEN_WEBSHOP_DATA", "nowhere")
    earlier = {"webshop_official": {"other products": [0, 0, 1]}}
    found = products_asked_for({**SHOPS, "webshop_512": ON_A_GPU["webshop_512"]}, earlier)
    assert found.keys() == {"webshop", "webshop_512", "webshop_official"}  # the other shop draws its own
    assert found["webshop_official"] == earlier["webshop_official"]
    assert found["webshop"] == found["webshop_512"]
    (asked,) = found["webshop"].values()
    assert len(asked) == 500 and asked[0] == 0 and set(asked) == set(range(84))
