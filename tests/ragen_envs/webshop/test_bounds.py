"""Observations stay in their spaces, also for the longest search that can be sent."""

import json
from pathlib import Path

import pytest

from ragen_envs.webshop.env import MAX_ACTION_LENGTH, WebShop
from webshop_server.store.filters import MAX_FILTERS, MAX_LENGTH
from webshop_server.store.state import MAX_QUERY

OPTIONS = {
    "color": [f"red {number}" for number in range(30)],
    "size": ["xs", "s", "m"],
    "scent": list("abcdefghijklmnopq"),
}
CHOSEN = (("color", "red 29"), ("size", "xs"), ("scent", "q"))


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    """One lamp with 50 option values, as many as any of the public 1000 products has."""
    lamp = {
        "asin": "B000000001",
        "name": "lamp",
        "category": "c",
        "query": "lamp",
        "product_category": "p",
        "pricing": "$20",
        "full_description": "é" * 16_570,
        "options": OPTIONS,
        "Attributes": ["soft"],
        "instruction_text": "Find a soft lamp",
        "instruction_attributes": ["soft"],
    }
    path = tmp_path / "lamps.jsonl"
    path.write_text(json.dumps(lamp), encoding="utf-8")
    assert sum(map(len, OPTIONS.values())) == 50
    return str(path)


@pytest.mark.parametrize("filler", ["😀", "a ", "\U000e0001", "'\" "])
def test_the_longest_search_leaves_no_observation_outside_its_space(catalog: str, filler: str) -> None:
    """Each option value's address repeats the search: 667,770 characters of HTML where the space had 262,144."""
    words = ("lamp " + filler * MAX_ACTION_LENGTH)[: MAX_ACTION_LENGTH - len("search[]")].rstrip()
    # As many as are kept, and as long as one may be; the lamp has these words in its title or its colors.
    named = ["color=red", *(f"{number}=lamp" for number in range(1, MAX_FILTERS))]
    filters = [f"filter[{(text + ' ' + '😀' * MAX_LENGTH)[:MAX_LENGTH]}]" for text in named]
    longest = {}
    for mode in ("text", "text_rich", "html", "url"):
        env = WebShop(catalog=catalog, observation_mode=mode, max_steps=None, show_actions=True)
        longest[mode] = len(env.reset(options={"goal": 0})[0])
        actions = [f"search[{words}]", *filters, "click[B000000001]", *(f"click[{value}]" for _, value in CHOSEN)]
        for action in (*actions, "click[description]", "click[< prev]", "click[buy now]"):
            observation, _, _, _, info = env.step(action)
            assert info["action_is_valid"], action
            assert observation in env.observation_space, (mode, len(observation))
            longest[mode] = max(longest[mode], len(observation))
    assert longest["html"] > 900_000 and longest["url"] > 8_192 and longest["text"] > 16_570


def test_no_action_is_too_long_for_the_store() -> None:
    assert MAX_ACTION_LENGTH <= MAX_QUERY
    env = WebShop(catalog="toy")
    env.reset(options={"goal": 0})
    assert env.step("search[" + "x" * (MAX_ACTION_LENGTH - len("search[]")) + "]")[-1]["action_is_valid"]
