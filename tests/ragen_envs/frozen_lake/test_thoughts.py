"""Thoughts on the ice: every sentence is read back and compared with the map that a player is shown."""

import re
from collections import Counter
from typing import Any

import pytest

from ragen_envs import AgentTurns, FrozenLake, best_action, explain
from tests.support.ragen_envs.thoughts import (
    ASIDE,
    OFFSETS,
    PLACE,
    WAY,
    Thought,
    check_claims,
    check_form,
    thoughts,
    way_in,
)

ID = "ragen/FrozenLake-v0"
FIRM = {"is_slippery": False, "coordinates": True}
NEUTRAL = (
    *(r"I (?:will |must |dare to )?(?:go|try|move|walk|choose|risk)", r"go", r"let me try", r"my move is"),
    *(r"Let me see what happens with", r"with", r"so", r"but", r"and", r"if", r"Left|Right|Up|Down"),
)
Square = tuple[int, int]


class Seen:
    """What the text of an observation shows."""

    def __init__(self, env: FrozenLake, action: str) -> None:
        rows = env.render().splitlines()[: len(env.lake.tiles) // env.lake.size]
        self.rules = env.instruction
        self.tiles = {(row, column): tile for row, line in enumerate(rows) for column, tile in enumerate(line)}
        (self.player,) = [square for square, tile in self.tiles.items() if tile == "P"]
        (self.goal,) = [square for square, tile in self.tiles.items() if tile == "G"]
        self.reached = self.moved(OFFSETS[action], self.player)
        row, column = OFFSETS[action]
        self.slips = {self.reached, self.moved((column, row), self.player), self.moved((-column, -row), self.player)}

    def moved(self, offset: Square, square: Square) -> Square:
        there = (square[0] + offset[0], square[1] + offset[1])
        return there if there in self.tiles else square

    def is_hole(self, place: str) -> bool:
        return self.tiles.get(self.at(place)) == "O"

    def at(self, place: str) -> Square:
        return self.player[0] + ASIDE[place.lower()][0], self.player[1] + ASIDE[place.lower()][1]

    def walk(self, start: Square) -> int:
        """Moves to the goal without slipping; a thousand if it cannot be reached."""
        lengths, frontier = {start: 0}, [start]
        for square in frontier:
            for offset in OFFSETS.values():
                there = self.moved(offset, square)
                if there not in lengths and self.tiles[there] != "O":
                    lengths[there] = lengths[square] + 1
                    frontier.append(there)
        return lengths.get(self.goal, 1000)

    def beeline(self, square: Square) -> int:
        return abs(square[0] - self.goal[0]) + abs(square[1] - self.goal[1])

    def claims(self) -> dict[str, Any]:
        """What each sentence says, and whether it is so."""
        offset = (self.goal[0] - self.player[0], self.goal[1] - self.player[1])
        nearer = self.tiles[self.reached] != "O" and self.walk(self.reached) == self.walk(self.player) - 1
        towards = self.beeline(self.reached) < self.beeline(self.player)
        no_hole = not any(self.tiles[square] == "O" for square in self.slips)
        blocked = self.walk(self.player) > self.beeline(self.player)
        mine, its = re.escape(str(self.player)), re.escape(str(self.goal))

        def lies_there(match: re.Match[str]) -> bool:
            return way_in(match["way"]) == offset

        def slips_in(match: re.Match[str]) -> bool:
            return self.is_hole(match["place"]) and self.at(match["place"]) in self.slips

        def slips_past(match: re.Match[str]) -> bool:
            return self.is_hole(match["place"]) and self.at(match["place"]) not in self.slips

        return {
            rf"I am at {mine} and the goal is at {its}, {WAY}": lies_there,
            rf"The goal at {its} is {WAY} from {mine}": lies_there,
            rf"(?:The goal is|I see the goal|From here the goal lies|Goal:) {WAY}": lies_there,
            r"the last step is|(?:next to me, )?so I finish|I reach it|one move away": lambda _: (
                self.reached == self.goal
            ),
            r"Every direct way is blocked by a hole|Holes block the direct way|no direct way is open": lambda _: (
                blocked
            ),
            r"so I walk around:|so I take a detour,|I go around with": lambda _: nearer and not towards,
            r"A safe step is|I get closer with": lambda _: nearer,
            r"so I stay clear of it": lambda _: self.tiles[self.reached] != "O",
            r"so I head for it with|I head": lambda _: towards,
            rf"I cannot slip into the hole {PLACE}": slips_past,
            rf"the hole {PLACE} is out of reach": slips_past,
            rf"I may slip into the hole {PLACE}": slips_in,
            rf"Despite the hole {PLACE}": slips_in,
            rf"(?:A hole lies|a hole is|with a hole|There is a hole|Hole) {PLACE}": lambda m: self.is_hole(m["place"]),
            r"No slip can end in a hole|Even a slip cannot end there|so I stay out of it": lambda _: no_hole,
            r"The ice is slippery": lambda _: "slippery" in self.rules,
        }


def check(thought: Thought) -> list[str]:
    check_form(thought.text, thought.actions[0])
    return check_claims(thought.text, Seen(thought.env, thought.actions[0]).claims(), NEUTRAL)


@pytest.mark.parametrize(
    ("kwargs", "noise"),
    [(FIRM, 0.5), ({"is_slippery": False, "size": 6}, 0.0), ({}, 0.5), ({"success_rate": 0.8}, 0.0)],
)
def test_every_sentence_is_true_of_the_map(kwargs: dict[str, Any], noise: float) -> None:
    said = Counter[str]()
    texts = set()
    for thought in thoughts(ID, 150, noise, length=2, render_mode="ansi", **kwargs):
        said.update(set(check(thought)))
        texts.add(re.sub(r"\d+|Left|Right|Up|Down", "", thought.text))
        slippery = kwargs.get("is_slippery", True)
        assert slippery or not re.search("slip|slide", thought.text), thought.text
    assert len(texts) > 100 and len(said) >= 7
    lengths = sorted(len(text.split()) for text in texts)
    assert lengths[-1] >= 2 * lengths[0]


def test_only_a_shortest_way_gets_a_reason_on_firm_ice() -> None:
    """What leads away from the goal, or into a hole, is tried."""
    kinds = Counter[bool]()
    for env, text, actions in thoughts(ID, 150, 1.0, render_mode="ansi", **FIRM):
        seen = Seen(env, actions[0])
        is_shortest = seen.tiles[seen.reached] != "O" and seen.walk(seen.reached) < seen.walk(seen.player)
        is_tried = re.search(r"\b(try|what happens)\b", text) is not None
        assert is_tried != is_shortest, text
        kinds[is_tried] += 1
    assert min(kinds.values()) > 40


def test_by_default_the_oracles_move_in_the_same_words() -> None:
    turns = AgentTurns(FrozenLake(is_slippery=False))
    turns.reset(seed=1)
    assert explain(turns) == explain(turns) == "The goal is 1 to the right and 1 down. I get closer with Down."
    assert best_action(turns, 10) == "Down"


def test_after_the_end_nothing_is_claimed() -> None:
    turns = AgentTurns(FrozenLake(is_slippery=False, frozen_prob=1.0, size=2, random_start=False))
    turns.reset(seed=0)
    turns.step(turns.format_reply(["Right", "Down"]))
    assert explain(turns, ["Up"]) == "The walk is over, and I try Up."
