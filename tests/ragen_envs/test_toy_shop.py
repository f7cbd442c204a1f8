"""The toy shop: its words and results, and its fixed evaluation prompts."""

import re

import pytest

from ragen_envs.webshop.toy_shop import SPLITS, ToyShop
from webshop_server.store.answer import AvailableActions


@pytest.fixture
def env() -> ToyShop:
    """At the start of task 0."""
    made = ToyShop(split="all")
    made.reset(options={"goal": 0})
    return made


def test_a_search_shows_the_five_best(env: ToyShop) -> None:
    start, info = env.reset(options={"goal": 0})
    assert start == f"Wanted: {env.session.instruction}"
    assert info["available_actions"] == AvailableActions(True, ())
    observation, reward, terminated, truncated, info = env.step("search: Small red shoe")
    lines = observation.split("\n")
    assert lines[:2] == [start, "Results for Small red shoe:"]
    assert len(lines) == 7 and all(re.fullmatch(r"\w{10} \| [\w ,]+ \| \$\d+\.\d\d", line) for line in lines[2:])
    assert [hit.asin for hit in env.hits] == [line[:10] for line in lines[2:]]
    assert {"small", "red", "shoe"} <= set(re.findall(r"\w+", env.hits[0].title.lower()))
    assert (reward, terminated, truncated) == (0.0, False, False)
    ids = tuple(hit.asin.lower() for hit in env.hits)
    assert info["available_actions"] == AvailableActions(True, ids, has_filters=True, buyable=ids)
    assert env.step("search:zzz qqq")[0].split("\n")[1:] == ["No results for zzz qqq"]
    assert env.hits == []


def test_a_click_tells_more_and_the_results_stay(env: ToyShop) -> None:
    env.step("search:shoe")
    first, second = env.hits[:2]
    product = env.store.shop.catalog.product(first.asin)
    observation, _, _, _, info = env.step(f"click:{first.asin}")
    expected = [f"Product {first.asin}: {first.title}", f"Price: {first.price}", *product.bullet_points]
    assert observation.split("\n")[1:] == expected
    assert info["action_is_effective"]
    assert not env.step(f"click:{first.asin}")[-1]["action_is_effective"]
    observation, _, _, _, info = env.step(f"click[{second.asin.lower()}]")
    assert observation.split("\n")[1] == f"Product {second.asin}: {second.title}"
    assert f"/{second.asin}/" in info["url"]
    observation, reward, terminated, _, info = env.step(f"buy: {first.asin}")
    assert f"/{first.asin}/" in info["url"]  # and not the one that was being read
    assert observation.split("\n")[1:] == [f"Bought {first.asin}: {first.title}", f"Score: {reward:.2f}"]
    assert terminated and info["available_actions"] == AvailableActions(False, ())


def test_256_evaluation_prompts_are_always_the_same() -> None:
    kept = SPLITS["eval"]
    assert kept[:5] == [327, 57, 12, 379, 140]
    assert len(set(kept)) == 256 and set(kept) <= set(range(384))
    evaluation, training = ToyShop(split="eval"), ToyShop(split="train")
    prompts = []
    for index in range(256):
        prompts.append(evaluation.reset(options={"index": index})[0])
        assert evaluation.session.goal == kept[index]
    assert len(set(prompts)) == 256
    assert {training.reset(seed=seed)[1]["goal_id"] for seed in range(300)} <= set(range(384)) - set(kept)
    with pytest.raises(ValueError, match="index=256 does not exist; split 'eval' has the tasks 0 to 255"):
        evaluation.reset(options={"index": 256})
    with pytest.raises(ValueError, match="split='test' is unknown; use one of all, train, eval"):
        ToyShop(split="test")
