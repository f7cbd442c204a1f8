"""Thoughts about boxes: every sentence is read back and compared with the room that a player is shown."""

import re
from collections import Counter
from typing import Any

import pytest

from ragen_envs import AgentTurns, Sokoban, explain
from tests.support.ragen_envs.thoughts import OFFSETS, WAY, Thought, check_claims, check_form, thoughts, way_in

Square = tuple[int, int]
State = tuple[Square, frozenset[Square]]
SIDE = r"(?P<side>above it|below it|on its left|on its right)"
TOWARDS = r"(?P<towards>up|down|to the left|to the right)"
# Who stands on this side pushes the box in this direction.
PUSHES = {"above it": "Down", "below it": "Up", "on its left": "Right", "on its right": "Left"}
WORDS = {"Up": "up", "Down": "down", "Left": "to the left", "Right": "to the right"}
FROM_ME = WAY.replace("way", "from_me")


def plus(square: Square, offset: Square) -> Square:
    return square[0] + offset[0], square[1] + offset[1]


class Seen:
    """What the text of an observation shows, and a plain breadth-first search on it."""

    def __init__(self, env: Sokoban, action: str) -> None:
        rows = env.render().splitlines()[: env.room.board.height]
        tiles = {(row, column): tile for row, line in enumerate(rows) for column, tile in enumerate(line)}
        self.floor = {square for square, tile in tiles.items() if tile != "#"}
        self.targets = {square for square, tile in tiles.items() if tile in "O√S"}
        boxes = frozenset(square for square, tile in tiles.items() if tile in "X√")
        (player,) = [square for square, tile in tiles.items() if tile in "PS"]
        self.state: State = player, boxes
        self.action = action
        self.then = self.moved(self.state, action)
        self.rows, self.env = rows, env

    def moved(self, state: State, action: str) -> State:
        (player, boxes), offset = state, OFFSETS[action]
        ahead, beyond = plus(player, offset), plus(plus(player, offset), offset)
        if ahead not in self.floor or ahead in boxes and (beyond not in self.floor or beyond in boxes):
            return state
        return ahead, frozenset(beyond if box == ahead else box for box in boxes)

    def moves_left(self, state: State) -> int:
        """Length of a shortest solution; a thousand if there is none."""
        lengths, frontier = {state: 0}, [state]
        for each in frontier:
            if each[1] <= self.targets:
                return lengths[each]
            for action in OFFSETS:
                after = self.moved(each, action)
                if after not in lengths:
                    lengths[after] = lengths[each] + 1
                    frontier.append(after)
        return 1000

    def walk(self, start: Square, end: Square) -> int:
        """Steps that push nothing; a thousand if there is no way."""
        lengths, frontier = {start: 0}, [start]
        for square in frontier:
            for offset in OFFSETS.values():
                there = plus(square, offset)
                if there in self.floor - self.state[1] and there not in lengths:
                    lengths[there] = lengths[square] + 1
                    frontier.append(there)
        return lengths.get(end, 1000)

    def box_of(self, text: str) -> set[Square]:
        """The boxes that a thought may be about."""
        if found := re.search(rf"(?:box|A box is) {FROM_ME} from me", text):
            return {plus(self.state[0], way_in(found["from_me"]))} & self.state[1]
        return set(self.state[1])

    def is_next_push(self, box: Square, towards: str) -> bool:
        """Whether the action starts a shortest solution whose first push is this one."""
        row, column = OFFSETS[towards]
        stand = box[0] - row, box[1] - column
        steps = self.walk(self.then[0], stand)
        after = self.moved((stand, self.state[1]), towards)
        return self.then[1] == self.state[1] and self.moves_left(self.state) == 1 + steps + 1 + self.moves_left(after)

    def claims(self, text: str) -> dict[str, Any]:
        """What each sentence says, and whether it is so."""
        boxes = self.box_of(text)
        before, now = self.state[1], plus(self.state[0], OFFSETS[self.action])
        is_push = now in before and self.then != self.state

        def goes(match: re.Match[str]) -> bool:
            return any(plus(box, way_in(match["way"])) in self.targets for box in boxes)

        def placed(match: re.Match[str]) -> bool:
            (box,) = boxes
            there = plus(box, way_in(match["way"]))
            return str(box) == match["at"] and there in self.targets and match["there"] in (None, str(there))

        def stands(match: re.Match[str]) -> bool:
            return PUSHES[match["side"]] == self.action and now in boxes and is_push

        def later(match: re.Match[str]) -> bool:
            push = PUSHES[match["side"]]
            told = match.groupdict().get("towards", WORDS[push])
            return told == WORDS[push] and any(self.is_next_push(box, push) for box in boxes)

        place = r"\(\d+, \d+\)"
        return {
            rf"The box at (?P<at>{place}) must get to (?P<there>{place}), {WAY}": placed,
            rf"The box at (?P<at>{place}) must go {WAY}(?P<there>)": lambda m: goes(m) and m["at"] == str(min(boxes)),
            rf"From (?P<at>{place}) the box has to go {WAY}, to (?P<there>{place})": placed,
            rf"(?:I want the|The) box {FROM_ME} from me (?:to|must) go {WAY}": lambda m: len(boxes) == 1 and goes(m),
            rf"The target is {WAY} from the box": goes,
            rf"A box is {FROM_ME} from me": lambda _: bool(boxes),
            rf"(?:The box must go|The box has to move|Box to target:) {WAY}": goes,
            r"A box is in the way on its target": lambda _: bool(before & self.targets),
            rf"To push it {TOWARDS} I must stand {SIDE}": later,
            rf"the next push is {TOWARDS}, so I must be {SIDE}": later,
            rf"I have to get {SIDE} to push it {TOWARDS}": later,
            rf"I walk to the square {SIDE}": later,
            rf"I first get {SIDE}": later,
            rf"I stand {SIDE}": stands,
            rf"I am {SIDE}": stands,
            r"one push does it|one push away|finish with": lambda _: is_push and self.ends(now),
            r"push": lambda _: is_push,
            r"Every box is on a target": lambda _: before <= self.targets,
        }  # fmt: skip

    def ends(self, box: Square) -> bool:
        return plus(box, OFFSETS[self.action]) in self.targets


NEUTRAL = (
    *(r"I (?:will |cannot )?(?:go|try|walk|pull)", r"let me try", r"Let me see what happens with", r"I\b"),
    *(r"with", r"so", r"but", r"and", r"Left|Right|Up|Down"),
)


def check(thought: Thought) -> list[str]:
    check_form(thought.text, thought.actions[0])
    return check_claims(thought.text, Seen(thought.env, thought.actions[0]).claims(thought.text), NEUTRAL)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "noise", "seeds"),
    [
        ("ragen/Sokoban-v0", {}, 0.0, 60),
        ("ragen/Sokoban-v0", {"coordinates": True}, 0.3, 60),
        ("ragen/Sokoban-v0", {"dim_room": (7, 7), "num_boxes": 2}, 0.2, 15),
    ],
)
def test_every_sentence_is_true_of_the_room(env_id: str, kwargs: dict[str, Any], noise: float, seeds: int) -> None:
    said, texts = Counter[str](), set()
    for thought in thoughts(env_id, seeds, noise, limits={"max_turns": 10}, render_mode="ansi", **kwargs):
        said.update(set(check(thought)))
        texts.add(re.sub(r"\d+|Left|Right|Up|Down", "", thought.text))
    assert len(texts) > 60 and len(said) >= 10
    lengths = sorted(len(text.split()) for text in texts)
    assert lengths[-1] >= 2 * lengths[0]


def test_only_a_shortest_solution_gets_a_reason() -> None:
    kinds = Counter[bool]()
    for env, text, actions in thoughts("ragen/Sokoban-v0", 30, 1.0, limits={"max_turns": 5}, render_mode="ansi"):
        seen = Seen(env, actions[0])
        left = seen.moves_left(seen.state)
        is_shortest = left < 1000 and seen.moves_left(seen.then) == left - 1
        is_tried = re.search(r"\b(try|what happens)\b", text) is not None
        assert is_tried != is_shortest, text
        kinds[is_tried] += 1
    assert min(kinds.values()) > 20


def test_a_lost_room_and_a_solved_one_only_get_a_try(tmp_path: Any) -> None:
    level = tmp_path / "level.txt"
    level.write_text("#######\n#     #\n#@$.  #\n#     #\n#######\n")
    env = Sokoban(levels=level)
    env.reset(seed=0)
    assert explain(AgentTurns(env), ["Right"]).endswith(" Right.")
    env.step("Right")
    assert explain(AgentTurns(env), ["Up"]) == "Every box is on a target, and I try Up."
