"""What a shop says after each action: the page, what it paid, and what can be done next. Also as JSON, for pages."""

import json
from collections.abc import Mapping
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
        """The answer as a JSON object, with other fields beside it.

        Nothing in it can end the element of a page that it stands in: "<", ">" and "&" are escaped.
        """
        text = json.dumps({**{name: getattr(self, name) for name in self.__slots__}, **others})
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Answer":
        """Reads what `as_json` wrote, once `json.loads` has read it; other fields are left out.

        Raises:
            KeyError, TypeError, ValueError: If a field is missing or of another kind.
        """
        known = {name: fields[name] for name in cls.__slots__}
        for name, kind in cls.__annotations__.items():
            if kind in (str, bool, float) and not isinstance(known[name], (int, float) if kind is float else kind):
                raise TypeError(f"{name}={known[name]!r:.80} is not of type {kind.__name__}")
        search, clickables, filters, buyable = known["available_actions"]
        known["available_actions"] = AvailableActions(bool(search), _texts(clickables), bool(filters), _texts(buyable))
        known["reward_parts"] = tuple((str(name), value) for name, value in known["reward_parts"])
        return cls(**{**known, "faults": _texts(known["faults"])})


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r:.80} is not a list of texts")
    return tuple(values)
