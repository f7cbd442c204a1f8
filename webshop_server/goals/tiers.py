"""The reward `tiered`: credit on the way to a purchase, built so that it cannot be farmed.

An episode is worth the best tier it reached:

| tier | reached by |
|---|---|
| 1.0 | buying an item that scores 1 |
| 0.5 + 0.3 x score | buying another item of the right kind, after a search or a page had shown one |
| 0.4 to 0.5 | choosing options on the page of an item of the right kind, by the share of wanted options that are met |
| 0.4 | opening the page of an item of the right kind |
| 0.3 | a search for words that shows one; lists and samples (`<c>`, `<r>`) count as valid actions without progress |
| 0.1 to 0.3 | valid actions without such progress, by how near the kind is; 0.1 to 0.2 a purchase of the wrong kind |
| 0.0 | only invalid actions |

A step is paid what it adds to the best tier so far. So the credits of an episode add up to its tier whatever its
length, and an action that is repeated pays once. The right kind is a `nearness` of 1. A blind purchase, before any
search or page showed the right kind, earns at most 0.2 unless it is the right item. The task's own score and its
success stay what the reward formula says.
"""

from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.goals.reward import PATH_SEPARATOR

EventKind = Literal["invalid", "idle", "search", "open", "choose", "buy"]
RIGHT_KIND = 1.0
VALID, SHOWN, OPENED, BOUGHT, SOLVED = 0.1, 0.3, 0.4, 0.5, 1.0
NEARNESS = 0.2  # what the nearness of the kind adds to VALID, at most; RIGHT_KIND itself is SHOWN
OPTIONS = 0.1
QUALITY = 0.3  # what the score of a purchase adds to BOUGHT
WRONG_PURCHASE = 0.1  # what the nearness of the kind adds to VALID for a purchase
LEAST_PARTS = 3
"""Parts of a path that names a kind of product; "Beauty & Personal Care › Skin Care" does not."""


@dataclass(frozen=True)
class TierEvent:
    """What one action of an episode did. Plain numbers, 0 to 1; those that a kind does not name are ignored."""

    # "invalid": not an action of this page. "idle": valid, shows nothing new (a page back, a description). "search":
    # results are shown, by a search or by turning a page. "open": a product's page is shown. "choose": an option was
    # chosen on it. "buy": the purchase; it ends the episode.
    kind: EventKind
    match: float = 0.0  # `nearness` of the product ("open", "choose", "buy"), or the largest of the results ("search")
    options: float = 0.0  # share of the goal's options met by the choices so far ("choose"); 0 if it asks for none
    score: float = 0.0  # total of the reward formula ("buy")


@dataclass(frozen=True)
class Progress:
    """Where an episode stands."""

    best: float = 0.0  # its tier so far, which is also the sum of the credits paid, 0 to 1
    found: bool = False  # a search or a page has shown the right kind of product


def pay(progress: Progress, event: TierEvent) -> tuple[Progress, float]:
    """Takes one step: the progress after an event, and the credit for it, 0 to 1. `Progress()` is the start."""
    best = max(progress.best, tier(event, progress.found))
    shown = event.kind in ("search", "open", "choose") and event.match >= RIGHT_KIND
    return Progress(best, progress.found or shown), best - progress.best


def tier(event: TierEvent, found: bool) -> float:
    """What one event is worth by itself: the tier of the module's table, 0 to 1.

    It never falls as `match`, `options`, `score` or `found` rise. `found` is whether the right kind of product was
    shown before; only a purchase asks.
    """
    right_kind = event.match >= RIGHT_KIND
    if event.kind == "invalid":
        return 0.0
    if event.kind == "idle":
        return VALID
    if event.kind == "buy":
        if event.score == 1:
            return SOLVED
        return BOUGHT + QUALITY * event.score if right_kind and found else VALID + WRONG_PURCHASE * event.match
    if not right_kind:
        return VALID + NEARNESS * event.match
    if event.kind == "search":
        return SHOWN
    return OPENED + (OPTIONS * event.options if event.kind == "choose" else 0.0)


def nearness(product: Product, goal: Goal) -> float:
    """How near the kind of a product is to the kind that is asked for, by the shop's own shelves.

    Nouns of titles, which the published formula compares, would pay for unrelated things on the way: taggers count
    brands and colours as nouns.

    Returns:
        1 for the goal's own product and for the same path of three parts or more. 1 also for the same search phrase,
        if the paths begin with the same three parts or more and at most their last parts differ, or if neither has a
        path. Else the share of the longer path, its department left out, that both paths begin with; below 1, and 0 in
        another department. A path of less than three parts counts as one of three.
    """
    if product.asin == goal.asin:
        return 1.0
    at, wanted = (
        [part for part in map(str.strip, one.product_category.split(PATH_SEPARATOR)) if part] for one in (product, goal)
    )
    shared = sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], zip(at, wanted, strict=False)))
    longest = max(len(at), len(wanted))
    is_found_together = bool(product.query) and product.query == goal.query
    if is_found_together and not (at or wanted):
        return 1.0
    if shared >= LEAST_PARTS and shared >= longest - is_found_together:
        return 1.0
    return max(shared - 1, 0) / (max(longest, LEAST_PARTS) - 1)
