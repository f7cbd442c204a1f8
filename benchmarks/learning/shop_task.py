"""WebShop for the embedded model: a small made-up store, a careless shopper to learn from, or a store of one's own.

A page of WebShop is 300 to 500 tokens of the small tokenizer, so the store is small, the model sees one page at a time
(the task stands on every page) and an episode has few turns. The shopper searches for words that stand side by side in
the request, whichever; opens the wanted product or, by mistake, any of the page; chooses the options that the request
names or, by mistake, buys at once. Its mistakes are what training can undo. Left out: sub pages, further pages of
results, filters, which the oracle does not need in so small a store.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken

from learning.demonstrations import Lesson, Reply, played
from ragen_envs import AgentTurns, best_action
from ragen_envs.shop_policies import BUTTONS, scripted_shop_action
from ragen_envs.webshop import WebShop, search_for
from ragen_trl.config import StarPOConfig
from ragen_trl.imitation import WarmStartConfig
from ragen_trl.seeds import WARM_START
from ragen_trl.tiny_model import build_tiny_tokenizer
from webshop_server.synthetic import synthetic_products

PRODUCTS = 60
CATALOG = f"synthetic:{PRODUCTS}"
SEARCHED = 3  # words side by side
# Longer histories than one page would be most of the run, and the limit of a search is that of its demonstrations.
PLAY: dict[str, Any] = {
    "max_turns": 6,
    "max_actions": 6,
    "max_actions_per_turn": 1,
    "max_reply_length": 32,
    "max_completion_length": 3600,
    "window_turns": 1,
    "beta": 0.0,
}


def store(split: str, catalog: str = CATALOG) -> dict[str, Any]:
    """Keyword arguments of the environment; no product is in two splits."""
    return {"catalog": catalog, "split": f"{split}_by_product"}


def careless(noise: float) -> Reply:
    """A shopper that makes a mistake with probability ``noise`` on a page of results or of a product."""

    def reply(turns: AgentTurns, random: np.random.Generator) -> str:
        shop = turns.unwrapped
        assert isinstance(shop, WebShop)
        return turns.format_reply([careless_action(shop, turns.actions_left, random, noise)])

    return reply


def careless_action(env: WebShop, actions_left: int, random: np.random.Generator, noise: float) -> str:
    """The shopper's next action.

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        actions_left: How many the episode still allows.
        random: Source of searches and mistakes.
        noise: Probability of a mistake.

    Returns:
        An action; identifiers in capitals, as pages show them, so that they are one token there and here.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    labels = [label for label in env.session.answer.available_actions.clickables if label != "search"]
    if "buy now" in labels:
        return "click[buy now]" if random.random() < noise else scripted_shop_action(env)
    shown = [label for label in labels if label not in BUTTONS]
    if not shown:
        return search_for(some_words(env.session.instruction, random))
    wanted = best_action(env, actions_left).removeprefix("click[").removesuffix("]")
    by_mistake = random.random() < noise or wanted not in shown
    return f"click[{(shown[random.integers(len(shown))] if by_mistake else wanted).upper()}]"


def some_words(request: str, random: np.random.Generator) -> str:
    """A few words that stand side by side in the request."""
    words = request.split()
    first = int(random.integers(max(1, len(words) - SEARCHED + 1)))
    return " ".join(words[first : first + SEARCHED])


def shopping(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Lesson: the careless shopper in the store of ``args.env_kwargs``; identifiers of the small store are tokens."""
    tokenizer = build_tiny_tokenizer(env=env)
    tokenizer.add_tokens([AddedToken(product.asin, normalized=False) for product in synthetic_products(PRODUCTS)])
    seeds = range(WARM_START, WARM_START + config.demonstrations)
    return tokenizer, played(env, args, tokenizer, careless(config.noise), seeds)


def add_catalog_option(parser: argparse.ArgumentParser) -> None:
    """``--webshop_data PATH``: a catalogue to play in instead of the made-up one."""
    parser.add_argument("--webshop_data", type=Path, help="catalogue of WebShop to train and test in, besides ours")
