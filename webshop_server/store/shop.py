"""A shop with tasks: the store, its goals and its rewards, and the episodes that shoppers play in it.

Everything a client of the JSON API sees is decided here, without HTTP: `Shop.start` begins an episode, `Shop.step`
takes an action, `Shop.answer` says what the client gets. Episodes are immutable, and a step is a pure function, so
that a server may keep them wherever it likes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from webshop_server.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.faults import purchase_faults
from webshop_server.goals.goals import Goal, Goals
from webshop_server.goals.kinds import nearness
from webshop_server.goals.nouns import NounTagger
from webshop_server.goals.reward import RewardMode, RewardParts, options_met, purchase_price, score
from webshop_server.goals.tiers import Progress, TierEvent, pay
from webshop_server.search.index import SearchIndex, is_special
from webshop_server.store.page_html import HtmlPages
from webshop_server.store.page_short import (
    short_actions,
    short_buyable,
    short_clickables,
    short_page,
    with_identifier,
)
from webshop_server.store.page_text import PageText, observation, url
from webshop_server.store.state import SEARCH, START, Event, PageState, Store

MODES = ("text", "text_rich", "html", "url", "short")
REWARDS = ("webshop", "fixed", "tiered", "success")
_REMEMBERED_GOALS = 4096


@dataclass(frozen=True)
class Rules:
    """How an episode is played; never changes within it.

    Attributes:
        mode: Kind of observation, one of `MODES`; `short` is not for parity.
        reward: What a step pays, one of `REWARDS`.
        parity: Whether to behave as the original.
        show_actions: Whether observations end with the actions that are possible.
    """

    mode: str = "text"
    reward: str = "fixed"
    parity: bool = False
    show_actions: bool = False

    @property
    def formula(self) -> RewardMode:
        """The formula of the task's score: "tiered" and "success" pay otherwise, and score as "fixed" does."""
        return "webshop" if self.reward == "webshop" else "fixed"


@dataclass(frozen=True)
class Episode:
    """Where an episode stands.

    Attributes:
        goal: Number of the goal.
        rules: How it is played.
        state: The page.
        reward: What the last step paid.
        valid: Whether the last action was carried out.
        effective: Whether it changed anything.
        parts: How the purchase was scored; None before.
        progress: Where it stands in the reward `tiered`.
    """

    goal: int
    rules: Rules = Rules()
    state: PageState = START
    reward: float = 0.0
    valid: bool = False
    effective: bool = False
    parts: RewardParts | None = None
    progress: Progress = Progress()

    @property
    def done(self) -> bool:
        """Whether something was bought."""
        return self.parts is not None


class Shop:
    """A catalogue, its goals, and the rules of the game. Read-only; one object serves all threads."""

    def __init__(
        self, catalog: Catalog, index: SearchIndex, goals: Goals, nouns: NounTagger, *, show_attributes: bool = False
    ) -> None:
        """Puts the parts together.

        Args:
            catalog: The products.
            index: Finds them.
            goals: The tasks.
            nouns: For the title score of the reward.
            show_attributes: Whether product pages have a page of attributes.
        """
        self.catalog = catalog
        self.goals = goals
        self.store = Store(catalog, index, show_attributes=show_attributes)
        self.html = HtmlPages(self.store)
        self._nouns = nouns
        self.goal = lru_cache(maxsize=_REMEMBERED_GOALS)(self._goal)

    def _goal(self, number: int) -> Goal:
        """A goal; `UnknownGoalError` if there is none."""
        return self.goals[number]

    def about(self) -> dict[str, Any]:
        """What is sold here and which tasks there are, for JSON."""
        return {
            "catalog": self.catalog.name,
            "catalog_hash": self.catalog.hash,
            "products": len(self.catalog),
            "goals": len(self.goals),
            "splits": self.goals.splits(),
            "reward_modes": list(REWARDS),
            "nouns": self._nouns.name,
        }

    def buy(self, goal: Goal, product: Product, options: Mapping[str, str], formula: RewardMode) -> RewardParts:
        """Scores a purchase.

        Args:
            goal: What was asked for.
            product: What was bought.
            options: With which options.
            formula: The formula.

        Returns:
            The score and its parts.
        """
        price = purchase_price(product, options, formula)
        return score(product, options, price, goal, self._nouns, formula)

    def start(self, goal: int, rules: Rules) -> Episode:
        """Begins an episode."""
        return Episode(goal, rules)

    def step(self, episode: Episode, action: str) -> Episode:
        """Takes an action.

        Args:
            episode: Where it stands; one that is done stays so, and every action on it is invalid.
            action: Any text.

        Returns:
            Where it stands then.
        """
        if episode.rules.mode == "short":
            action = with_identifier(self.store, episode.state, action)
        state, event = self.store.act(episode.state, action, parity=episode.rules.parity)
        parts = episode.parts
        if event.kind == "bought":
            product = self.catalog.product(state.asin)
            parts = self.buy(self.goal(episode.goal), product, dict(state.options), episode.rules.formula)
        progress = episode.progress
        if episode.rules.reward == "tiered":
            progress, reward = pay(progress, self._tier_event(episode.goal, state, event, parts))
        elif parts is None or event.kind != "bought":
            reward = 0.0
        else:
            reward = float(parts.success) if episode.rules.reward == "success" else parts.total
        return replace(
            episode,
            state=state,
            reward=reward,
            valid=event.valid,
            effective=event.effective,
            parts=parts,
            progress=progress,
        )

    def _tier_event(self, number: int, state: PageState, event: Event, parts: RewardParts | None) -> TierEvent:
        goal = self.goal(number)
        if event.kind in ("searched", "filtered", "turned"):
            if is_special(state.keywords):  # a sample or a list of the catalogue is no search that found something
                return TierEvent("idle")
            products = map(self.catalog.product, self.store.shown(state))
            return TierEvent("search", match=max((nearness(product, goal) for product in products), default=0.0))
        if event.kind not in ("opened", "chose", "bought"):
            return TierEvent("idle" if event.valid else "invalid")
        product = self.catalog.product(state.asin)
        match = nearness(product, goal)
        if event.kind == "opened":
            return TierEvent("open", match)
        if parts is not None:
            return TierEvent("buy", match, score=parts.total)
        met = options_met(product, dict(state.options), goal)
        return TierEvent("choose", match, options=sum(met) / len(met) if met else 0.0)

    def answer(self, episode: Episode) -> dict[str, Any]:
        """What a client gets after a step, for JSON.

        Of the goal it holds the instruction, and nothing of the score before something was bought.

        Args:
            episode: Where it stands.

        Returns:
            The fields of the API.
        """
        state, parts = episode.state, episode.parts
        answer = {
            "observation": self._observation(episode),
            "url": url(state, str(episode.goal)),
            "reward": episode.reward,
            "done": episode.done,
            "valid": episode.valid,
            "effective": episode.effective,
            "task_score": parts.total if parts else 0.0,
            "success": parts.success if parts else False,
            "available_actions": self._available_actions(episode),
        }
        if parts is not None:
            answer["reward_parts"] = {"total": parts.total, "price": parts.price, **parts.as_info()}
            answer["faults"] = purchase_faults(parts, self.goal(episode.goal))
        return answer

    def _observation(self, episode: Episode) -> str:
        """What the shopper sees, in the mode of the rules."""
        state, rules, score = episode.state, episode.rules, episode.parts.total if episode.parts else None
        page = PageText(self.goal(episode.goal).instruction, str(episode.goal), score, rules.parity)
        if rules.mode == "short":
            actions = short_actions(self.store, state) if rules.show_actions else ""
            return short_page(self.store, state, page) + actions
        html = rules.mode == "html"
        shown = self.html.render(state, page) if html else observation(self.store, state, page, rules.mode)
        if not rules.show_actions:
            return shown
        return shown + actions_line(state, self.store.clickables(state, parity=rules.parity), rules.parity)

    def _available_actions(self, episode: Episode) -> dict[str, Any]:
        """What can be done, labels as the page shows them."""
        store, state, parity = self.store, episode.state, episode.rules.parity
        if episode.rules.mode == "short":
            clickables, buyable = short_clickables(store, state), short_buyable(store, state)
        else:
            clickables, buyable = store.clickables(state, parity=parity), [] if parity else store.buyable(state)
        return {
            "has_search_bar": store.has_search_bar(state),
            "clickables": clickables,
            "has_filters": not parity and store.can_filter(state),
            "buyable": buyable,
        }


def actions_line(state: PageState, clickables: Sequence[str], parity: bool) -> str:
    r"""The possible actions as the last line of an observation.

    Args:
        state: The page.
        clickables: What can be clicked.
        parity: Whether there are no filters, and nothing can be bought by its identifier.

    Returns:
        A line break and the line; "" where nothing is possible.

    >>> actions_line(PageState(), [], parity=False)
    '\nAvailable actions: search[<words>]'
    >>> actions_line(PageState("item"), ["back to search"], parity=False)
    '\nAvailable actions: search[<words>], click[back to search]'
    """
    # The original's pages understand searches everywhere, too, but its list has them where there is a field.
    can_search = state.kind == "start" if parity else state.kind != "done"
    actions = ["search[<words>]"] if can_search else []
    actions += [f"click[{target}]" for target in clickables if target != SEARCH]
    if state.kind == "results" and not parity:
        actions += ["filter[<condition>]", "buy[<id>]"]
    return "\nAvailable actions: " + ", ".join(actions) if actions else ""
