"""What a shop says after each action: the page, what it paid, and what can be done next. Also as JSON, for pages."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

MODES = ("text", "text_rich", "html", "url", "short")
REWARDS = ("webshop", "fixed", "tiered", "success")


class AvailableActions(NamedTuple):
    """The actions that a page offers."""

    has_search_bar: bool  # whether the page has a search field
    clickables: tuple[str, ...]  # the labels that can be clicked, in lower case, in the order of the page
    has_filters: bool = False  # whether the page is one of results, which `filter[…]` narrows; never in parity mode
    # What `buy[…]` takes here: identifiers in lower case, or numbers in the mode `short`; none in parity mode.
    buyable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A shop's answer to an action, or to the start of an episode. Nothing of the goal is in it before the purchase."""

    observation: str  # the page in the mode of the episode
    url: str  # the address that the original's text environment would show
    reward: float  # reward of this action
    done: bool  # whether something was bought
    valid: bool  # whether the action was carried out
    effective: bool  # whether it changed the page
    task_score: float  # score of the purchase, from 0 to 1; 0 before the purchase
    success: bool  # whether the score is 1
    available_actions: AvailableActions  # the next possible actions
    # Names and values of the parts of the score; empty before the purchase.
    reward_parts: tuple[tuple[str, Any], ...] = ()
    faults: tuple[str, ...] = ()  # what is wrong with the purchase; empty before it

    def as_json(self, **others: Any) -> str:
        """The answer as a JSON object, with other fields beside it. Nothing in it can end the element of a page."""
        from jinja2.utils import htmlsafe_json_dumps

        return str(htmlsafe_json_dumps({**{name: getattr(self, name) for name in self.__slots__}, **others}))

    @classmethod
    def read(cls, text: str) -> "Answer":
        """Reads what `as_json` wrote; other fields are left out. A `ValueError` if a field is missing or wrong."""
        answer: Answer = _reader().validate_json(text, strict=True)
        return answer


@functools.cache
def _reader() -> Any:
    from pydantic import TypeAdapter  # slow to load, and only clients read answers

    return TypeAdapter(Answer)
