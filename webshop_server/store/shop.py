"""A shop with tasks: the store, its goals and its rewards, and the episodes that shoppers play in it.

`open_shop` opens one, `Shop.start` begins an episode, `Shop.step` takes an action, `Shop.answer` says what the shopper
gets. Episodes are immutable, and a step is a pure function, so whoever plays may keep them wherever it likes.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from webshop_server.catalog import Catalog, open_catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import SPLITS, Goal, Goals, UnknownGoalError, make_goals
from webshop_server.goals.nouns import NounTagger, noun_tagger
from webshop_server.goals.reward import RewardMode, RewardParts, options_met, purchase_faults, score
from webshop_server.goals.tiers import Progress, TierEvent, nearness, pay
from webshop_server.search.index import SearchIndex, is_special
from webshop_server.store import page_text
from webshop_server.store.answer import REWARDS, Answer, AvailableActions
from webshop_server.store.page_html import HtmlPages
from webshop_server.store.pictures import page_svg
from webshop_server.store.state import BUY_NOW, INVALID, PAGE_SIZE, START, EventKind, PageState, Store

_REMEMBERED_GOALS = 4096


@dataclass(frozen=True)
class Rules:
    """How an episode is played; never changes within it."""

    mode: str = "text"  # kind of observation, one of `answer.MODES`; `short` is not for parity
    reward: str = "fixed"  # what a step pays, one of `answer.REWARDS`
    parity: bool = False  # whether to behave as the original
    show_actions: bool = False  # whether observations end with the actions that are possible
    carries: bool = False  # whether a program plays over HTTP, so that pages carry the store's answer

    @property
    def formula(self) -> RewardMode:
        """The formula of the task's score: "tiered" and "success" pay otherwise, and score as "fixed" does."""
        return "webshop" if self.reward == "webshop" else "fixed"


@dataclass(frozen=True)
class Episode:
    """Where an episode stands."""

    goal: int  # number of the goal
    rules: Rules = Rules()  # how it is played
    state: PageState = START  # the page
    reward: float = 0.0  # what the last step paid
    valid: bool = False  # whether the last action was carried out
    effective: bool = False  # whether it changed anything
    parts: RewardParts | None = None  # how the purchase was scored; None before
    progress: Progress = Progress()  # where it stands in the reward `tiered`

    @property
    def done(self) -> bool:
        """Whether something was bought."""
        return self.parts is not None


class Shop:
    """A catalogue, its goals, and the rules of the game. Read-only; one object serves all threads."""

    def __init__(self, catalog: Catalog, index: SearchIndex, goals: Goals, nouns: NounTagger) -> None:
        """Puts the parts together."""
        self.catalog, self.goals = catalog, goals
        self.store = Store(catalog, index)
        self.html = HtmlPages(self.store)
        self._nouns = nouns
        self.goal = lru_cache(maxsize=_REMEMBERED_GOALS)(goals.__getitem__)

    def about(self) -> dict[str, Any]:
        """What is sold here and which tasks there are, for JSON."""
        return {
            "catalog": self.catalog.name,
            "catalog_hash": self.catalog.hash,
            "products": len(self.catalog),
            "goals": len(self.goals),
            "splits": {name: len(self.goals.split(name)) for name in SPLITS},
            "reward_modes": list(REWARDS),
            "nouns": self._nouns.name,
        }

    def buy(self, goal: Goal, product: Product, options: Mapping[str, str], formula: RewardMode) -> RewardParts:
        """Scores a purchase."""
        return score(product, options, goal, self._nouns, formula)

    def find_goal(
        self, split: str = "all", *, goal: int | None = None, index: int | None = None, seed: int | None = None
    ) -> int:
        """The number of a goal: `goal` itself, the one at an `index` of a split, or one that a `seed` draws by weight.

        Without any of the three, each call draws another one.

        Raises:
            GoalError: If the split is unknown or empty.
            UnknownGoalError: If there is no such goal.
        """
        if goal is not None:
            return self.goal(goal).id
        if index is None:
            return self.goals.sample(random.SystemRandom() if seed is None else random.Random(seed), split)
        numbers = self.goals.split(split)
        if not 0 <= index < len(numbers):
            raise UnknownGoalError(f"split {split!r} has {len(numbers)} goals; there is no index {index}")
        return int(numbers[index])

    def start(self, goal: int, rules: Rules) -> Episode:
        """Begins an episode; `UnknownGoalError` if there is no such goal."""
        return Episode(self.goal(goal).id, rules)

    def step(self, episode: Episode, action: str) -> Episode:
        """Takes an action."""
        if episode.rules.mode == "short":
            action = page_text.with_identifier(self.store, episode.state, action)
        state, event = self.store.act(episode.state, action, parity=episode.rules.parity)
        parts = episode.parts
        if event == "bought":
            product = self.catalog.product(state.asin)
            parts = self.buy(self.goal(episode.goal), product, dict(state.options), episode.rules.formula)
        progress = episode.progress
        if episode.rules.reward == "tiered":
            progress, reward = pay(progress, self._tier_event(episode.goal, state, event, parts))
        elif parts is None or event != "bought":
            reward = 0.0
        else:
            reward = float(parts.success) if episode.rules.reward == "success" else parts.total
        valid, effective = event != INVALID, state != episode.state
        return Episode(episode.goal, episode.rules, state, reward, valid, effective, parts, progress)

    def _tier_event(self, number: int, state: PageState, event: EventKind, parts: RewardParts | None) -> TierEvent:
        goal = self.goal(number)
        if event in ("searched", "filtered", "turned"):
            if is_special(state.keywords):  # a sample or a list of the catalogue is no search that found something
                return TierEvent("idle")
            products = map(self.catalog.product, self.store.shown(state))
            return TierEvent("search", match=max((nearness(product, goal) for product in products), default=0.0))
        if event not in ("opened", "chose", "bought"):
            return TierEvent("invalid" if event == INVALID else "idle")
        product = self.catalog.product(state.asin)
        match = nearness(product, goal)
        if event == "opened":
            return TierEvent("open", match)
        if parts is not None:
            return TierEvent("buy", match, score=parts.total)
        met = options_met(product, dict(state.options), goal)
        return TierEvent("choose", match, options=sum(met) / len(met) if met else 0.0)

    def answer(self, episode: Episode) -> Answer:
        """What the shopper gets after a step: of the goal the instruction alone before something was bought."""
        parts = episode.parts
        told: dict[str, Any] = {}
        if parts is not None:
            scored = {"total": parts.total, "price": parts.price, **parts.as_info()}
            told = {"reward_parts": tuple(scored.items()), "faults": purchase_faults(parts, self.goal(episode.goal))}
        state, rules, score = episode.state, episode.rules, parts.total if parts else None
        clickables = self.store.clickables(state, parity=rules.parity)
        page = page_text.PageText(self.goal(episode.goal).instruction, str(episode.goal), score, rules.parity)
        html = rules.mode == "html"
        shown = self.html.render(state, page) if html else page_text.observation(self.store, state, page, rules.mode)
        buyable = [] if rules.parity else self.store.buyable(state)
        if rules.show_actions and rules.mode == "short":
            shown += page_text.short_actions(self.store, state)
        elif rules.show_actions:
            shown += page_text.actions_line(state, clickables, rules.parity)
        if rules.mode == "short":
            numbers = page_text.numbers(self.store, state)
            clickables = [numbers.get(label, label) for label in clickables]
            buyable = [numbers.get(asin, BUY_NOW) for asin in buyable]
        filters = not rules.parity and state.kind == "results"
        return Answer(
            observation=shown,
            url=page_text.url(state, str(episode.goal)),
            reward=episode.reward,
            done=episode.done,
            valid=episode.valid,
            effective=episode.effective,
            task_score=score or 0.0,
            success=parts.success if parts else False,
            available_actions=AvailableActions(state.kind == "start", tuple(clickables), filters, tuple(buyable)),
            **told,
        )

    def picture(self, episode: Episode, hits: int = PAGE_SIZE) -> str:
        """Draws the page: the product, or at most `hits` products of a page of results; "" where it shows neither."""
        return page_svg(self.store, episode.state, hits)


def open_shop(
    catalog: str | Path | Catalog = "synthetic",
    *,
    seed: int = 0,
    human_goals: bool = False,
    nouns: str | None = None,
    cache_dir: str | Path | None = None,
) -> Shop:
    """Opens a catalogue with its index and its goals, by the arguments of `create_app`.

    Raises:
        CatalogError, GoalError: If the catalogue cannot be opened, or makes no tasks.
        ValueError: If the tagger is unknown or not installed.
    """
    products = catalog if isinstance(catalog, Catalog) else open_catalog(catalog, seed=seed, cache_dir=cache_dir)
    known = next(products.products()).nouns is not None
    tagger = noun_tagger(nouns or ("precomputed" if known else "rules"))
    goals = make_goals(products, human=human_goals)
    return Shop(products, SearchIndex.open(products), goals, tagger)
