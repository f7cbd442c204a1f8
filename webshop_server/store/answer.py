"""What a shop says after each action: the page, what it paid, and what can be done next. Also as JSON, for pages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MODES = ("text", "text_rich", "html", "url", "short")
REWARDS = ("webshop", "fixed", "tiered", "success")


class AvailableActions(NamedTuple):
    """The actions that a page offers.

    Attributes:
        has_search_bar: Whether the page has a search field.
        clickables: The labels that can be clicked, in lower case, in the order of the page.
        has_filters: Whether the page is one of results, which `filter[…]` narrows; never in parity mode.
        buyable: What `buy[…]` takes here: identifiers in lower case, or numbers in the mode `short`; none in parity
            mode.
    """

    has_search_bar: bool
    clickables: tuple[str, ...]
    has_filters: bool = False
    buyable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A shop's answer to an action, or to the start of an episode. Nothing of the goal is in it before the purchase.

    Attributes:
        observation: The page in the mode of the episode.
        url: The address that the original's text environment would show.
        reward: Reward of this action.
        done: Whether something was bought.
        valid: Whether the action was carried out.
        effective: Whether it changed the page.
        task_score: Score of the purchase, from 0 to 1; 0 before the purchase.
        success: Whether the score is 1.
        available_actions: The next possible actions.
        reward_parts: Names and values of the parts of the score; empty before the purchase.
        faults: What is wrong with the purchase; empty before it.
    """

    observation: str
    url: str
    reward: float
    done: bool
    valid: bool
    effective: bool
    task_score: float
    success: bool
    available_actions: AvailableActions
    reward_parts: tuple[tuple[str, Any], ...] = ()
    faults: tuple[str, ...] = ()

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
