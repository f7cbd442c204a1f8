"""Sokoban: rules by hand, levels, the room generator against its rules, the solver against breadth-first search."""

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ragen_envs import Sokoban
from ragen_envs.sokoban.rooms import Board, Room, RoomError, _play_backwards, draw_room, read_levels
from ragen_envs.sokoban.solver import Solver

CORRIDOR = "#######\n#@$ . #\n#######\n"
TWO_BOXES = "#######\n#@$.*.#\n#   $ #\n#     #\n#######\n"


@pytest.fixture
def load(tmp_path: Path):
    """Makes an environment of the levels in a text."""

    def make(text: str, **kwargs) -> Sokoban:
        path = tmp_path / "levels.txt"
        path.write_text(text, encoding="utf-8")
        env = Sokoban(levels=str(path), **kwargs)
        env.reset(seed=0)
        return env

    return make


def test_a_push_onto_the_last_target_pays_10_9(load) -> None:
    env = load(CORRIDOR)
    observation, reward, terminated, truncated, info = env.step("right")
    assert observation == "#######\n#_PXO_#\n#######"
    assert (reward, terminated, truncated) == (-0.1, False, False)
    assert info == {"success": False, "action_is_effective": True, "pushed": True, "action_is_valid": True}
    observation, reward, terminated, truncated, info = env.step("Right")
    assert observation == "#######\n#__P√_#\n#######"
    assert reward == pytest.approx(10.9)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_every_kind_of_push_has_its_reward(load) -> None:
    env = load(TWO_BOXES)
    assert env.step("Right")[1] == pytest.approx(0.9)  # a box onto a target, others are still off
    assert env.step("Right")[1] == pytest.approx(-0.1)  # blocked by the next box
    for action in ("Down", "Right"):
        assert env.step(action)[1] == pytest.approx(-0.1)  # on the floor, no box moved
    observation, reward, _, _, info = env.step("Up")
    assert (reward, info["pushed"]) == (pytest.approx(-0.1), False)  # the box above stands against the wall
    assert observation.splitlines()[1:3] == ["#__√√O#", "#__PX_#"]
    # Off a target costs one, and from target to target nothing.
    env = load("########\n#@*. $ #\n########\n")
    assert env.step("Right")[1] == pytest.approx(-0.1)  # from target to target
    assert env.step("Right")[1] == pytest.approx(-1.1)  # off it
    assert env.step("Right")[1] == pytest.approx(-0.1)  # two boxes in a row do not move


def test_truncated_after_max_steps_and_then_nothing_happens(load) -> None:
    env = load(CORRIDOR, max_steps=3)
    env.step("no action")  # costs no step
    assert [env.step("Left")[3] for _ in range(3)] == [False, False, True]
    room = env.room
    assert env.step("Right")[1:4] == (0.0, False, True)
    assert env.room == room
    assert env.reset()[1]["success"] is False
    assert [env.step("Right")[2:4] for _ in range(2)] == [(False, False), (True, False)]


def test_levels_are_drawn_or_chosen(load) -> None:
    env = load(f"{CORRIDOR}\n{TWO_BOXES}\n; a title\n{CORRIDOR.replace('$ ', ' $')}")
    starts = {env.reset(seed=seed)[0] for seed in range(30)}
    assert len(starts) == 3
    chosen = [env.reset(seed=4, options={"level": index})[0] for index in range(3)]
    assert set(chosen) == starts and len(set(chosen)) == 3
    after = env.reset()[0]
    env.reset(seed=4)
    assert env.reset()[0] == after  # choosing a level does not move later starts
    assert chosen[0] in env.observation_space and chosen[1] in env.observation_space
    assert copy.deepcopy(env)._levels is env._levels  # a plan copies the environment for each reply


def read(tmp_path: Path, text: str):
    """The levels of a text."""
    path = tmp_path / "set.xsb"
    path.write_bytes(text.encode())
    return read_levels(path)


def test_symbols_and_surroundings(tmp_path: Path) -> None:
    text = (
        "\ufeff  #####\r\n###   #\r\n#.$@- #\r\n###_*.#\r\n  #$###\r\n  # #\r\n  ###\r\n\r\nAuthor: nobody\r\n"
        "####\r\n#+ #\r\n#$ #\r\n#  #\r\n####"
    )
    first, second = read(tmp_path, text)
    assert (first.board.height, first.board.width) == (7, 7)
    # Row 3 is "###_*.#": a floor, a box on a target, a target.
    assert first.board.targets == {2 * 7 + 1, 3 * 7 + 4, 3 * 7 + 5}
    assert first.boxes == {2 * 7 + 2, 3 * 7 + 4, 4 * 7 + 3}
    assert first.player == 2 * 7 + 3
    assert 0 not in first.board.floor and 5 * 7 + 3 in first.board.floor  # outside is no floor, a nook is
    assert len(first.board.floor) == 3 + 5 + 3 + 1 + 1
    assert (second.player, second.board.targets, second.boxes) == (5, {5}, {9})


def test_levels_that_cannot_be_played_are_named(tmp_path: Path) -> None:
    two_players, no_target, is_open = "#####\n#@$.#\n#@  #\n#####", "#####\n#@$ #\n#####", "#####\n#@$.\n#####"
    blocks = [CORRIDOR.strip(), two_players, no_target, is_open, "########\n#@ #$ .#\n########"]
    room, *reasons = read(tmp_path, "\n\n".join(blocks))
    assert isinstance(room, Room)
    assert [reason.partition("set.xsb, ")[2].partition(";")[0] for reason in reasons] == [
        "line 5: 2 players",
        "line 10: boxes: 1, targets: 0",
        "line 14: the level is open at row 2, column 5",
        "line 18: the player cannot reach row 2, column 5, boxes ignored",
    ]
    for text in ("", "\n\n".join(blocks[1:])):
        with pytest.raises(RoomError):
            read(tmp_path, text)


def test_other_spellings_of_a_level(tmp_path: Path) -> None:
    for text in ("7#\n#@$-.-#\n7#", "7#|#@$1-.1-#|7#", "#######\n#pb . #\n#######", "#######|#@$ . #|#######|"):
        assert read(tmp_path, text) == read(tmp_path, CORRIDOR), text
    # A box on its target that nobody reaches is wall.
    (room,) = read(tmp_path, "#########\n#@$ . #*#\n#########")
    assert (room.boxes, room.board.targets) == ({9 + 2}, {9 + 4})


def test_a_bad_level_costs_that_level_and_shifts_no_number(load) -> None:
    with pytest.warns(UserWarning, match="1 of 3 levels cannot be played: .*line 5: boxes: 1, targets: 0"):
        env = load(f"{CORRIDOR}\n#####\n#@$ #\n#####\n\n{TWO_BOXES}")
    assert env.reset(options={"level": 2})[0].startswith("#######\n#PXO√O#")
    assert {env.reset(seed=seed)[0].count("\n") for seed in range(20)} == {2, 4}
    with pytest.raises(RoomError, match="line 5: boxes: 1, targets: 0"):
        env.reset(options={"level": 1})


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"dim_room": (3, 7)}, {"dim_room": (7, 3)}, {"dim_room": (5, 9), "num_boxes": 3, "search_depth": 30}],
    ids=str,
)
def test_rooms_are_well_formed(kwargs: dict) -> None:
    for seed in range(100):
        room = draw_room(np.random.default_rng(seed), **kwargs)
        board = room.board
        assert (board.height, board.width) == kwargs.get("dim_room", (6, 6))
        for row, column in (divmod(square, board.width) for square in board.floor):
            assert 0 < row < board.height - 1 and 0 < column < board.width - 1  # a wall all around
        assert len(room.boxes) == len(board.targets) == kwargs.get("num_boxes", 1)
        assert room.boxes | board.targets | {room.player} <= board.floor
        assert not room.boxes & board.targets
        assert room.player not in room.boxes


def played_backwards(board: Board, player: int, search_depth: int) -> tuple[int, tuple[int, ...], int] | None:
    """RAGEN's search as its rules say, one call a state: score, boxes in the order of their targets, player.

    A state is where the player is and, for each square with a box, whether that box was ever pulled.
    """
    seen = set()
    best: tuple[int, tuple[int, ...], int] | None = None
    homes = tuple(board.targets)

    def visit(player: int, boxes: tuple[int, ...], pulled: frozenset[int], swaps: int, last: int, ttl: int) -> None:
        nonlocal best
        ttl -= 1
        state = (player, frozenset((square, box in pulled) for box, square in enumerate(boxes)))
        if ttl <= 0 or state in seen:
            return
        seen.add(state)
        apart = [
            abs(square // board.width - home // board.width) + abs(square % board.width - home % board.width)
            for square, home in zip(boxes, homes, strict=True)
        ]
        targets_are_free = not board.targets & {player, *boxes}
        score = swaps * sum(apart) if targets_are_free else 0
        if score > (0 if best is None else best[0]):
            best = (score, boxes, player)
        for offset in board.offsets:
            ahead, back = player + offset, player - offset
            if ahead not in board.floor or ahead in boxes:
                continue
            if back in boxes:
                box = boxes.index(back)
                moved = (*boxes[:box], player, *boxes[box + 1 :])
                visit(ahead, moved, pulled | {box}, swaps + (box != last), box, ttl)
            else:
                visit(ahead, boxes, pulled, swaps, last, ttl)

    visit(player, homes, frozenset(), 0, -1, search_depth)
    return best


@pytest.mark.parametrize("search_depth", [4, 10, 300])
def test_backward_play_against_the_rules_one_call_a_state(search_depth: int) -> None:
    """On random boards of up to three boxes. For example, counting each pull as a change of box would fail here."""
    rng = np.random.default_rng(search_depth)
    outcomes = Counter()
    for _ in range(150):
        height, width, num_boxes = (int(rng.integers(*limits)) for limits in ((4, 6), (5, 7), (1, 4)))
        inside = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
        floor = [square for square in inside if rng.random() < 0.85]
        if len(floor) < num_boxes + 1:
            continue
        player, *targets = rng.permutation(floor)[: num_boxes + 1].tolist()
        board = Board(height, width, frozenset(floor), frozenset(targets))
        expected = played_backwards(board, player, search_depth)
        found = _play_backwards(board, player, search_depth)
        assert (found and found[:2]) == (expected and expected[1:])
        outcomes[num_boxes, expected is None] += 1
    assert outcomes[1, False] > 5 and (outcomes[2, False] > 5 or search_depth == 4)  # two pulls move no second box


def moves_to_solve(room: Room) -> int:
    """Fewest moves, by breadth-first search over the whole state space, with no pruning at all."""
    board = room.board
    layer, seen, moves = {(room.player, room.boxes)}, {(room.player, room.boxes)}, 0
    while not any(boxes == board.targets for _, boxes in layer):
        assert layer
        reached = set()
        for player, boxes in layer:
            for offset in board.offsets:
                ahead, beyond = player + offset, player + 2 * offset
                if ahead in boxes and beyond in board.floor - boxes:
                    reached.add((ahead, boxes - {ahead} | {beyond}))
                elif ahead in board.floor - boxes:
                    reached.add((ahead, boxes))
        layer = reached - seen
        seen |= layer
        moves += 1
    return moves


@pytest.mark.parametrize(("size", "boxes", "count"), [((6, 6), 1, 200), ((6, 7), 2, 60), ((6, 6), 3, 15)], ids=str)
def test_solutions_are_shortest(size: tuple[int, int], boxes: int, count: int) -> None:
    for seed in range(count):
        room = draw_room(np.random.default_rng(seed), size, boxes, search_depth=60)
        assert Solver(room.board).distance(room.player, room.boxes) == moves_to_solve(room)


def test_answers_do_not_depend_on_earlier_questions() -> None:
    """Regression: a path cached by another question decided ties, so that plans depended on earlier questions."""
    env = Sokoban(num_boxes=2)
    rng = np.random.default_rng(0)
    for seed in range(60):
        env.reset(seed=seed)
        asked = Solver(env.room.board)
        for _ in range(12):
            room = env.room
            asked.distance(room.player, room.boxes)
            assert asked.best_move(room.player, room.boxes) == Solver(room.board).best_move(room.player, room.boxes)
            if env.step(env.actions[rng.integers(4)])[2]:
                break
