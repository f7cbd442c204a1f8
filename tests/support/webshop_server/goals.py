"""What tests ask of goals."""

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.goals.nouns import NounTagger
from webshop_server.goals.reward import RewardMode, score
from webshop_server.store.winnable import own_options


def values_of(goal: Goal) -> tuple[str, ...]:
    """The option values that a goal asks for, whether it names the options or not."""
    return tuple(value for _, value in goal.asked)


def is_winnable(product: Product, goal: Goal, nouns: NounTagger, mode: RewardMode) -> bool:
    """Whether a goal's own product scores 1, those of its own options chosen that can be clicked."""
    return score(product, own_options(product, goal), goal, nouns, mode).success
