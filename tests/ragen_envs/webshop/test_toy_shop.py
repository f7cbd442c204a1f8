"""The toy shop: its words, its five results, its score by hand, its fixed evaluation prompts."""

import re

import pytest

from ragen_envs.webshop.client import ShopServerError, server_connection
from ragen_envs.webshop.local_store import local_store
from ragen_envs.webshop.session import AvailableActions
from ragen_envs.webshop.toy_shop import ToyShop, evaluation_goals
from tests.support.ragen_envs.shop_fakes import FakeStore


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
    assert env.hits == ()


def test_a_filter_that_is_not_understood_leaves_the_product_open(env: ToyShop) -> None:
    """Regression: the page told of the product, and the store stood on the results."""
    env.step("search:shoe")
    page, _, _, _, info = env.step(f"click:{env.hits[1].asin}")
    again, _, _, _, after = env.step("filter:price?50")
    assert (again, after["url"], after["action_is_valid"]) == (page, info["url"], False)
    assert env.step(f"buy:{env.hits[0].asin}")[0].split("\n")[1].startswith(f"Bought {env.hits[0].asin}")


def test_a_click_tells_more_and_the_results_stay(env: ToyShop) -> None:
    env.step("search:shoe")
    first, second = env.hits[:2]
    product = local_store(env.settings).shop().catalog.product(first.asin)
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


def test_scores_by_hand(env: ToyShop) -> None:
    """Color and one more thing of `n` wrong, the price right: 1 · (n - 1 + 1) / (n + 1); all right: 1."""
    shop = local_store(env.settings).shop()
    goal = shop.goal(0)
    right = shop.catalog.product(goal.asin)
    alike = next(
        product
        for product in shop.catalog.products()
        if product.query == right.query
        and product.price < goal.price_upper
        and len({one.removesuffix(" size") for one in goal.attributes} - set(product.attributes)) == 1
    )
    for product, score in ((alike, len(goal.attributes) / (len(goal.attributes) + 1)), (right, 1.0)):
        env.reset(options={"goal": 0})
        env.step(f"search:{product.title}")
        _, reward, terminated, _, info = env.step(f"buy:{product.asin}")
        assert reward == info["task_score"] == pytest.approx(score)
        assert (terminated, info["success"]) == (True, score == 1.0)


def test_filters_narrow_the_results(env: ToyShop) -> None:
    """Regression: the report's verb `filter:` was no action."""
    assert not env.step("filter:price<50")[-1]["action_is_valid"]  # nothing was searched for
    env.step("search:shoe")
    hits = env.hits
    observation, reward, _, _, info = env.step("filter:price<50")
    assert observation.split("\n")[1] == "Results for shoe, price<50:"
    assert (reward, info["action_is_valid"], info["action_is_effective"]) == (0.0, True, True)
    assert len(env.hits) == 5 and all(float(hit.price.removeprefix("$")) < 50 for hit in env.hits)
    observation, *_ = env.step("filter[Color = Red]")
    assert observation.split("\n")[1].startswith("Results for shoe, price<50, color=red:")
    assert env.hits and all("Red" in hit.title for hit in env.hits)
    env.step(f"click:{env.hits[0].asin}")
    assert env.step("filter:all")[0].split("\n")[1] == "Results for shoe:"
    assert env.hits == hits


def test_sizes_are_told_apart_by_filters_and_a_wrong_filter_is_no_action(env: ToyShop) -> None:
    env.step("search:shoe")
    before, *_, info = env.step("filter:size=large")
    assert all(hit.title.startswith("Large ") for hit in env.hits)
    for action in ("filter:", "filter:cheap", "filter:price<much", "filter:color<red", "filter"):
        observation, _, terminated, truncated, info = env.step(action)
        assert (observation, terminated, truncated, info["action_is_valid"]) == (before, False, False, False)
    assert env.step(f"buy:{env.hits[0].asin}")[2]


def test_anything_can_be_searched_for(env: ToyShop) -> None:
    """The word that replaces an empty search can also be searched for."""
    observation, _, _, _, info = env.step("search:anything")
    assert info["action_is_valid"] and "anything" in observation.split("\n")[1]
    assert env.step("search:[anything]")[-1]["action_is_valid"]
    assert not env.step("search:[[")[-1]["action_is_valid"]


def test_what_is_being_read_can_be_bought(env: ToyShop) -> None:
    env.step("search:shoe")
    hit = env.hits[1]
    env.step(f"click:{hit.asin}")
    observation, _, terminated, _, info = env.step(f"buy:{hit.asin}")
    assert terminated and observation.split("\n")[1] == f"Bought {hit.asin}: {hit.title}"
    assert f"/{hit.asin}/" in info["url"]


def test_only_what_was_shown_can_be_bought(env: ToyShop) -> None:
    asin = local_store(env.settings).shop().catalog.asins[0]
    for action in (
        f"buy:{asin}",
        f"click:{asin}",
        "buy:",
        "search:",
        "search:[ ]",
        "search",
        "buy now",
        "look:x",
        "search:\x00",
    ):
        observation, reward, terminated, _, info = env.step(action)
        assert (observation, reward, terminated) == (f"Wanted: {env.session.instruction}", 0.0, False)
        assert not info["action_is_valid"]
    env.step("search:clothing")
    hidden = next(asin for asin in local_store(env.settings).shop().catalog.asins if asin not in str(env.hits))
    assert not env.step(f"buy:{hidden}")[-1]["action_is_valid"]


def test_five_turns(env: ToyShop) -> None:
    assert [env.step(f"search:shoe {turn}")[3] for turn in range(5)] == [False] * 4 + [True]
    env.reset(seed=0)
    for _ in range(4):
        env.step("search:shoe")
    assert env.step(f"buy:{env.hits[0].asin}")[2:4] == (True, False)


def test_256_evaluation_prompts_are_always_the_same() -> None:
    kept = evaluation_goals(384)
    assert kept[:5] == (327, 57, 12, 379, 140)
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


def test_256_seeds_in_a_row_play_each_evaluation_prompt_once() -> None:
    """Regression: the seeds 0 to 255 drew 159 of the 256 prompts."""
    env = ToyShop(split="eval")
    kept = evaluation_goals(384)
    assert [env.reset(seed=seed)[1]["goal_id"] for seed in range(256)] == list(kept)
    assert {env.reset(seed=8000 + seed)[1]["goal_id"] for seed in range(256)} == set(kept)
    assert env.reset(seed=7)[1]["goal_id"] == kept[7]


def test_resets_without_a_seed_draw_prompts() -> None:
    """Regression: they played the next one, so that 4 environments with 16 episodes met 7 prompts."""
    envs = [ToyShop(split="eval") for _ in range(4)]
    played = [env.reset(seed=seed)[1]["goal_id"] for seed, env in enumerate(envs)]
    played += [env.reset()[1]["goal_id"] for _ in range(3) for env in envs]
    assert len(set(played)) >= 15
    assert set(played) <= set(evaluation_goals(384))


def test_evaluation_has_other_texts_and_the_same_products() -> None:
    """As the docstring says: the words are new, the products are not."""
    shop = local_store(ToyShop().settings).shop()
    kept = set(evaluation_goals(384))
    evaluation, training = ([shop.goal(goal) for goal in goals] for goals in (kept, set(range(384)) - kept))
    assert not {goal.instruction for goal in evaluation} & {goal.instruction for goal in training}
    assert {goal.asin for goal in training} < {goal.asin for goal in evaluation} == set(shop.catalog.asins)


def test_tiers_pay_on_the_way_and_one_in_all() -> None:
    env = ToyShop(split="all", reward="tiered")
    env.reset(options={"goal": 0})
    goal = local_store(env.settings).shop().goal(0)
    rewards = [env.step(f"{verb}")[1] for verb in (f"search:{goal.name}", f"click:{goal.asin}", f"buy:{goal.asin}")]
    assert rewards == pytest.approx([0.3, 0.1, 0.6])


def test_another_catalogue_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    env = ToyShop(base_url="http://shop.test")
    connection = FakeStore().connection()
    monkeypatch.setattr(connection, "send", lambda method, path, body=None: {"catalog": "synthetic:2000", "goals": 9})
    env._connection = connection
    message = r"http://shop.test has .* tasks of the catalogue 'synthetic:2000'.*--catalog toy"
    with pytest.raises(ShopServerError, match=message):
        env.reset()
    assert server_connection("http://shop.test").address == "http://shop.test"
