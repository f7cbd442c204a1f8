"""Which product each request of a shop asks for: requests for one product are alike, and no separate evidence."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium
from measuring.real_products import asked_for, real_folder

from agents.games import Game
from agents.results import grouped
from agents.runs import DATA, placed
from ragen_envs import WebShop
from ragen_envs.webshop.local_store import goal_product


def products_asked_for(
    games: Mapping[str, Game], earlier: Mapping[str, Mapping[str, list[int]]]
) -> dict[str, dict[str, list[int]]]:
    """Of each game with evaluations in WebShop, by evaluation: the number of the product by start seed, from 0 on.

    Args:
        games: By name.
        earlier: What this returned before; it stands where the real products are not here now.

    Returns:
        Numbers from 0 on, in the order in which products are asked for first.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for name, game in games.items():
        for evaluation, (env_id, kwargs) in game.evaluations.items():
            if "WebShop" not in env_id:
                continue
            described = f"{env_id}:{json.dumps(kwargs)}"
            if DATA in described and asked_for(None) is None:
                found |= {name: earlier[name]} if name in earlier else {}
            else:
                described = placed(described, {DATA: str(real_folder(None))})
                found.setdefault(name, {})[evaluation] = _products(described, game.episodes)
    return found


@cache
def _products(described: str, episodes: int) -> list[int]:
    """Of the start seeds of an environment, as options describe it; games with the same requests share them."""
    asked = grouped(described, ({"seed": seed} for seed in range(episodes)), _product)
    numbers = {row["seed"]: number for number, rows in enumerate(asked.values()) for row in rows}
    return [numbers[seed] for seed in range(episodes)]


def _product(env: gymnasium.Env[Any, Any]) -> str:
    shop = env.unwrapped
    assert isinstance(shop, WebShop)
    return goal_product(shop.base_url, shop.settings, shop.session.goal)
