"""WebShop for the embedded model: a small made-up store, and a careless shopper to learn from.

A page of results is 450 to 530 tokens of the small tokenizer, and an episode of the oracle about 1150, so the store is
small and an episode has few turns. The shopper searches for any few neighbouring words of the request. It opens the
wanted product or, by mistake, any product of the page. It chooses the options that the request names or, by mistake,
buys at once. Training can undo its mistakes. Left out: sub pages, further pages of results, and filters.
"""

from typing import Any

import numpy as np
from tokenizers import AddedToken

from learning.demonstrations import Lesson, Reply, played
from ragen_envs import AgentTurns, best_action
from ragen_envs.webshop.env import WebShop, search_for
from ragen_envs.webshop.local_store import StoreSettings, local_store
from ragen_envs.webshop.policies import BUTTONS, scripted_shop_action
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.seeds import WARM_START

CATALOG = "synthetic:60"
MOST_TOKENS = 2000  # products of a larger store are spelled
SEARCHED = 3  # neighbouring words
# The model has 2048 positions. It sees all pages of an episode: A*-PO takes no window of turns.
PLAY: dict[str, Any] = {
    "max_turns": 6,
    "max_actions": 6,
    "max_actions_per_turn": 1,
    "max_reply_length": 32,
    "max_completion_length": 1800,
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
    wanted = best_action(env, actions_left).partition("[")[2].removesuffix("]")  # the oracle clicks it, or buys at once
    by_mistake = random.random() < noise or wanted not in shown
    return f"click[{(shown[random.integers(len(shown))] if by_mistake else wanted).upper()}]"


def some_words(request: str, random: np.random.Generator) -> str:
    """A few neighbouring words of the request."""
    words = request.split()
    first = int(random.integers(max(1, len(words) - SEARCHED + 1)))
    return " ".join(words[first : first + SEARCHED])


def shopping(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Lesson: the careless shopper in the store of ``args.env_kwargs``. Identifiers are tokens if there are few.

    Args:
        env: Gymnasium id.
        args: Limits, format and store.
        config: Number of episodes and noise.
    """
    assert isinstance(args.env_kwargs, dict)
    tokenizer = build_tiny_tokenizer(env=env)
    products = local_store(StoreSettings(args.env_kwargs["catalog"], False, None)).shop().catalog
    if len(products) <= MOST_TOKENS:
        tokenizer.add_tokens([AddedToken(identifier, normalized=False) for identifier in products])
    seeds = range(WARM_START, WARM_START + config.demonstrations)
    return tokenizer, played(env, args, tokenizer, careless(config.noise), seeds)
