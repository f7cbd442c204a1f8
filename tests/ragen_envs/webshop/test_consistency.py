"""The consistency bonus by hand."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_envs.webshop.consistency import LAST_WORDS, MAX_BONUS, consistency, restates
from ragen_envs.webshop.policies import best_toy_action
from ragen_envs.webshop.thoughts import toy_thought
from ragen_envs.webshop.toy_shop import ToyShop
from tests.support.ragen_envs.timing import assert_linear


@pytest.mark.parametrize(
    ("thought", "action", "bonus"),
    [
        ("I will search for a red cotton shirt.", "search[red cotton shirt]", 0.2),
        ("I need a red cotton shirt.", "search[red cotton shirt]", 0.15),
        ("I need a shirt.", "search[a red cotton shirt]", 0.05),  # one of three words, nothing announced
        ("The first item, B09ABC, fits. Click it.", "click[b09abc]", 0.2),
        ("B09ABC fits.", "click[B09ABC]", 0.15),
        ("I choose size x-large", "click[x-large]", 0.2),
        ("It matches. I buy it.", "click[buy now]", 0.2),
        ("It matches.", "click[Buy Now]", 0.0),
        ("This is wrong, go back", "click[back to search]", 0.2),
        ("See more results on the next page.", "click[next >]", 0.2),
        ("I should not buy this, it is red.", "click[buy now]", 0.0),
        ("Not the red one; pick blue.", "click[red]", 0.0),
        ("Not the red one; pick blue.", "click[blue]", 0.2),
        ("I don’t want red.", "click[red]", 0.0),
        ("I will buy it.", "click[blue]", 0.0),
        ("click click click", "click[blue]", 0.0),  # announcing alone is worth nothing
        ("", "search[shirt]", 0.0),
        ("shirt", "shirt", 0.0),
        ("shirt", "", 0.0),
        ("to the of", "search[to the of]", 0.0),
        ("only those under 50", "filter[price<50]", 0.125),  # "price" is not named
        ("search a red shirt", "search:red shirt", 0.2),
        ("buy 7f3a", "buy:7f3a", 0.2),
    ],
)
def test_by_hand(thought: str, action: str, bonus: float) -> None:
    assert consistency(thought, action) == pytest.approx(bonus)


def test_the_first_thought_of_a_demonstration_restates_and_the_second_one_names_a_result() -> None:
    """Regression: a thought that went on to announce its search counted as more than the request."""
    env, rng = ToyShop(split="train"), np.random.default_rng(0)
    found: list[list[bool]] = []
    for seed in range(20):
        env.reset(seed=seed)
        found.append([])
        for _ in range(2):
            action = best_toy_action(env, rng)
            found[-1].append(restates(toy_thought(env, [action], rng), env.session.instruction))
            env.step(action)
    first, second = zip(*found, strict=True)
    assert sum(first) >= 12  # the others begin with the price
    assert not any(second)


def test_only_the_end_of_a_thought_counts() -> None:
    assert consistency("Click blue. " + "word " * LAST_WORDS, "click[blue]") == 0.0
    assert consistency("word " * 1000 + "Click blue.", "click[blue]") == pytest.approx(0.2)


@given(st.text(max_size=200), st.one_of(st.text(max_size=50), st.builds("click[{}]".format, st.text(max_size=50))))
def test_any_text_is_rated(thought: str, action: str) -> None:
    assert 0 <= consistency(thought, action) <= MAX_BONUS


@pytest.mark.parametrize("text", ["]" * 50_000, "] " * 25_000, "[" * 50_000, " " * 50_000, "a." * 25_000])
def test_long_text_takes_linear_time(text: str) -> None:
    assert_linear(lambda part: consistency(part, "click[" + part + "x"), [text])
