"""Which product each request of a shop asks for: requests for one product are alike, and no separate evidence."""

import json
from collections.abc import Mapping
from typing import Any

import gymnasium
from measuring.real_products import asked_for, real_folder

from agents.games import Game
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
            if DATA in json.dumps(kwargs) and asked_for(None) is None:
                found |= {name: earlier[name]} if name in earlier else {}
            else:
                found.setdefault(name, {})[evaluation] = _products(env_id, kwargs, game.episodes)
    return found


def _products(env_id: str, kwargs: Mapping[str, Any], episodes: int) -> list[int]:
    here = json.loads(placed(json.dumps(dict(kwargs)), {DATA: str(real_folder(None))}))
    env = gymnasium.make(env_id, disable_env_checker=True, **here)
    shop = env.unwrapped
    assert isinstance(shop, WebShop)
    numbers: dict[str, int] = {}
    asked = []
    for seed in range(episodes):
        env.reset(seed=seed)
        product = goal_product(shop.base_url, shop.settings, shop.session.goal)
        asked.append(numbers.setdefault(product, len(numbers)))
    return asked
