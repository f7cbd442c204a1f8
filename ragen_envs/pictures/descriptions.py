"""Whether a description of a state is right, judged by rules from the state itself and not by another model.

A description says where things are, in two ways: a place, as ``box (2, 3)``, with rows and columns counted from 0 at
the top left; or a relation, as ``box is above target``. Both are compared with the map that the text environment shows.
"""

import re
from collections.abc import Mapping
from statistics import fmean

Square = tuple[int, int]

DESCRIPTION_PROMPT = (
    "Begin each thought with <observation>…</observation>, which says where things are now, and end it with "
    "<prediction>…</prediction>, which says where they will be after your actions. Write places as player (row, "
    "column), counted from 0 at the top left, and relations as box is above target (or below, left of, right of)."
)
"""A system prompt that asks for the descriptions which the reward of docs/pictures.md rates."""

_SOKOBAN = {"player": "PS", "box": "X√", "target": "O√S"}
_LAKE = {"player": "PX√", "hole": "OX", "goal": "G√"}
_KINDS = "player|you|box|target|hole|goal"
_PLACE = re.compile(rf"\b({_KINDS})\b[^()\w]*(?:(?:is|at|in|on)\s+){{0,2}}\(\s*(\d{{1,3}})\s*,\s*(\d{{1,3}})\s*\)")
_RELATION = re.compile(rf"\b({_KINDS})\s+(?:is\s+|are\s+)?(above|below|left\s+of|right\s+of)\s+(?:the\s+)?({_KINDS})\b")


def description_score(text: str, state: str) -> float:
    r"""Rates a description of a map of Sokoban or FrozenLake.

    It is the share of right statements less that of wrong ones, or 0 if more are wrong, times the share of the map that
    the right ones tell: the mean over the kinds of things that are there (the player, and boxes and targets, or holes
    and the goal). Of a kind they tell the share of its squares that they name, or half of it for each axis, up to down
    and left to right, on which a relation places it. A relation of several things is right if it holds for all of
    them. What is said twice, or from both sides, counts once. So a guess at everything earns 0, and a single guess
    little.

    Args:
        text: What was said; words in any case.
        state: The observation of the text environment, in its default symbols.

    Returns:
        From 0 to 1; 0 if nothing was said, or the state is no map.

    Example:
        >>> room = "####\n#PX#\n#_O#\n####"
        >>> description_score("player (1, 1), box (1, 2), target (2, 2)", room)
        1.0
        >>> description_score("player (1, 1), box (1, 2), target (1, 1), target is below box", room)
        0.4166666666666667
    """
    squares, lower = _places(state), text.casefold()
    places = {(_name(kind), (int(row), int(column))) for kind, row, column in _PLACE.findall(lower)}
    relations = {_relation(*found) for found in _RELATION.findall(lower)}
    if not squares or not places | relations:
        return 0.0
    named = {(kind, square) for kind, square in places if square in squares.get(kind, ())}
    held = {(one, axis, other) for one, axis, other in relations if _holds(one, axis, other, squares)}
    right, said = len(named) + len(held), len(places) + len(relations)
    axes = {(kind, axis) for one, axis, other in held for kind in (one, other)}
    told = [
        max(sum(each == kind for each, _ in named) / len(there), len(axes & {(kind, 0), (kind, 1)}) / 2)
        for kind, there in squares.items()
    ]
    return max(0, 2 * right - said) / said * fmean(told)


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


def _relation(one: str, relation: str, other: str) -> tuple[str, int, str]:
    """What is further up (axis 0) or further left (axis 1), the axis, and of what."""
    axis = 0 if relation in ("above", "below") else 1
    first, second = _name(one), _name(other)
    return (first, axis, second) if relation.startswith(("above", "left")) else (second, axis, first)


def _holds(one: str, axis: int, other: str, squares: Mapping[str, frozenset[Square]]) -> bool:
    """Whether all of the one kind are further up, or left, than all of the other; both must be there."""
    if one not in squares or other not in squares:
        return False
    return max(square[axis] for square in squares[one]) < min(square[axis] for square in squares[other])
