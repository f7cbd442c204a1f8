"""The room generator, by its properties and by the distribution of the original's rooms."""

import re
from collections import Counter

import numpy as np
import pytest

from ragen_envs.sokoban.rooms import Board, NoRoomError, _play_backwards, draw_room
from ragen_envs.sokoban.solver import Solver


def optimal_lengths(count: int, **kwargs) -> np.ndarray:
    """Moves of a shortest solution of each of `count` rooms."""
    rooms = [draw_room(np.random.default_rng(seed), **kwargs) for seed in range(count)]
    lengths = [Solver(room.board).distance(room.player, room.boxes) for room in rooms]
    assert None not in lengths  # every room can be solved
    return np.array(lengths)


def test_lengths_of_solutions_at_the_default() -> None:
    """RAGEN's room code over 2000 rooms: mean 4.15 (standard error 0.05), p90 7; over 300 rooms it was 4.2 and 8."""
    lengths = optimal_lengths(1000)
    assert abs(lengths.mean() - 4.2) <= 0.3
    assert np.percentile(lengths, 90) in (7, 8)
    assert (lengths <= 10).mean() >= 0.99


def test_lengths_of_solutions_of_large_rooms() -> None:
    """RAGEN's room code over 1000 rooms: mean 5.81 (standard error 0.06), p90 8, at most 11."""
    lengths = optimal_lengths(400, dim_room=(8, 8), num_boxes=2, search_depth=10)
    assert abs(lengths.mean() - 5.81) <= 0.3
    assert np.percentile(lengths, 90) == 8
    assert lengths.max() <= 12


def test_the_carving_walk_has_its_length() -> None:
    """gym-sokoban's generator with the same arguments: 10.56 squares of floor over 1500 rooms."""
    floors = [len(draw_room(np.random.default_rng(seed)).board.floor) for seed in range(1000)]
    assert np.mean(floors) == pytest.approx(10.6, abs=0.25)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"dim_room": (3, 7)}, {"dim_room": (7, 3)}, {"dim_room": (5, 9), "num_boxes": 3, "search_depth": 30}],
    ids=str,
)
def test_rooms_are_well_formed(kwargs: dict) -> None:
    for seed in range(100):
        room = draw_room(np.random.default_rng(seed), **kwargs)
        board = room.board
        rows, columns = zip(*(divmod(square, board.width) for square in board.floor), strict=True)
        assert (board.height, board.width) == kwargs.get("dim_room", (6, 6))
        assert 1 <= min(rows) and max(rows) <= board.height - 2  # a wall all around
        assert 1 <= min(columns) and max(columns) <= board.width - 2
        assert len(room.boxes) == len(board.targets) == kwargs.get("num_boxes", 1)
        assert room.boxes | board.targets | {room.player} <= board.floor
        assert not room.boxes & board.targets
        assert room.player not in room.boxes


def test_a_room_is_a_function_of_the_generator() -> None:
    assert draw_room(np.random.default_rng(3)) == draw_room(np.random.default_rng(3))
    assert len({draw_room(np.random.default_rng(seed)) for seed in range(50)}) > 40
    random = np.random.default_rng(3)
    assert draw_room(random) != draw_room(random)


def test_backward_play_finds_the_farthest_box_of_a_corridor() -> None:
    """By hand: the target at the left end, the player right of it pulls the box to the right, as far as there is room.

    Squares 8 to 12 are the corridor; the player ends one square beyond the box.
    """
    board = Board(3, 7, frozenset(range(8, 13)), frozenset({8}))
    assert _play_backwards(board, 9, search_depth=300) == ((11,), 12, 3)
    # The start has depth 0, and depths up to search_depth - 2 count: two pulls.
    assert _play_backwards(board, 9, search_depth=4) == ((10,), 11, 2)
    # From the left of the target nothing can be pulled off it: there is no square to step back to.
    assert _play_backwards(Board(3, 7, frozenset({8, 9}), frozenset({9})), 8, search_depth=300) is None


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


def test_sizes_without_rooms_are_named() -> None:
    message = "no solvable room in 1000 attempts for dim_room=(3, 5), num_boxes=3, search_depth=30"
    with pytest.raises(NoRoomError, match=re.escape(message)):
        draw_room(np.random.default_rng(0), (3, 5), num_boxes=3, search_depth=30)
