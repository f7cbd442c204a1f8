"""Whether a description of a state is right, judged by rules from the state itself and not by another model.

A description says where things are, in two ways: a place, as ``box (2, 3)``, with rows and columns counted from 0 at
the top left; or a relation, as ``box is above target``. Both are compared with the map that the text environment shows.
Left out: other ways to say it (they count as nothing said), maps in other symbols than the defaults, and shops.
"""

import re
from collections.abc import Mapping

Square = tuple[int, int]

DESCRIPTION_PROMPT = (
    "Begin each thought with <observation>…</observation>, which says where things are now, and end it with "
    "<prediction>…</prediction>, which says where they will be after your actions. Write places as player (row, "
    "column), counted from 0 at the top left, and relations as box is above target (or below, left of, right of)."
)
"""A system prompt that asks for what `ragen_trl.batching.rewards.description_reward` reads."""

_SOKOBAN = {"player": "PS", "box": "X√", "target": "O√S"}
_LAKE = {"player": "PX√", "hole": "OX", "goal": "G√"}
_KINDS = "player|you|box|target|hole|goal"
_PLACE = re.compile(rf"\b({_KINDS})\b[^()\w]*(?:(?:is|at|in|on)\s+){{0,2}}\(\s*(\d{{1,3}})\s*,\s*(\d{{1,3}})\s*\)")
_RELATION = re.compile(rf"\b({_KINDS})\s+(?:is\s+|are\s+)?(above|below|left\s+of|right\s+of)\s+(?:the\s+)?({_KINDS})\b")


def description_score(text: str, state: str) -> float:
    r"""Rates a description of a map of Sokoban or FrozenLake.

    It is the share of the statements that are right, times the share of the kinds of things (the player, and boxes and
    targets, or holes and the goal) that a right statement names. So neither a guess at everything nor a single safe
    statement earns much.

    Args:
        text: What was said; words in any case.
        state: The observation of the text environment, in its default symbols.

    Returns:
        From 0 to 1; 0 if nothing was said, or the state is no map.

    Example:
        >>> room = "####\n#PX#\n#_O#\n####"
        >>> description_score("player (1, 1), box (1, 2); target is below box", room)
        1.0
        >>> round(description_score("player (1, 1), box (2, 2)", room), 2)
        0.17
    """
    places = _places(state)
    told: list[tuple[bool, tuple[str, ...]]] = []
    lower = text.casefold()
    for kind, row, column in _PLACE.findall(lower):
        name = _name(kind)
        told.append(((int(row), int(column)) in places.get(name, ()), (name,)))
    for one, relation, other in _RELATION.findall(lower):
        names = _name(one), _name(other)
        told.append((_holds(relation, *(places.get(name, frozenset()) for name in names)), names))
    if not told or not places:
        return 0.0
    right = [names for is_right, names in told if is_right]
    named = {name for names in right for name in names}
    return len(right) / len(told) * len(named & places.keys()) / len(places)


def _places(state: str) -> Mapping[str, frozenset[Square]]:
    """Where each kind of thing is, of the kinds that are on the map."""
    rows = state.splitlines()
    kinds = _SOKOBAN if state.startswith("#") else _LAKE
    width = len(rows[0]) if rows else 0
    grid = [row for row in rows if len(row) == width and not re.search(r"[a-z ]", row)]
    found = {
        kind: frozenset((r, c) for r, row in enumerate(grid) for c, symbol in enumerate(row) if symbol in symbols)
        for kind, symbols in kinds.items()
    }
    return {kind: squares for kind, squares in found.items() if squares}


def _name(kind: str) -> str:
    return "player" if kind == "you" else kind


def _holds(relation: str, ones: frozenset[Square], others: frozenset[Square]) -> bool:
    """Whether any of the ones is so placed to any of the others: further up, down, left or right."""
    axis = 0 if relation in ("above", "below") else 1
    sign = 1 if relation in ("above",) or relation.startswith("left") else -1
    return any(sign * (other[axis] - one[axis]) > 0 for one in ones for other in others)
