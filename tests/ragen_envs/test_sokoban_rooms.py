"""The room generator, by its properties and by the distribution of the original's rooms."""

import re

import numpy as np
import pytest

from ragen_envs.sokoban_rooms import Board, NoRoomError, _play_backwards, draw_room
from ragen_envs.sokoban_solver import Solver


def optimal_lengths(count: int, **kwargs) -> np.ndarray:
    """Moves of a shortest solution of each of `count` rooms."""
    rooms = [draw_room(np.random.default_rng(seed), **kwargs) for seed in range(count)]
    lengths = [Solver(room.board).distance(room.player, room.boxes) for room in rooms]
    assert None not in lengths  # every room can be solved
    return np.array(lengths)


def test_lengths_of_solutions_at_the_default() -> None:
    """RAGEN's: mean 4.2, p90 8, 99 % within 10 (300 rooms).

    gym-sokoban 0.0.6's own generator, with RAGEN's arguments and stroll, gives over 1500 rooms: mean 4.11 (standard
    error 0.06), 58.7 % within 4, 75.5 % within 5, 91.5 % within 7, 99.3 % within 10. Its p90 is thus 7.
    """
    lengths = optimal_lengths(1000)
    assert abs(lengths.mean() - 4.2) <= 0.3
    assert np.percentile(lengths, 90) in (7, 8)
    assert (lengths <= 10).mean() >= 0.99
    for within, share in ((4, 0.587), (5, 0.755), (7, 0.915)):
        assert (lengths <= within).mean() == pytest.approx(share, abs=0.05)


def test_lengths_of_solutions_of_large_rooms() -> None:
    """gym-sokoban's generator over 1200 rooms, searching 10 deep: mean 5.85, 45 % within 5, 80 % within 7."""
    lengths = optimal_lengths(400, dim_room=(8, 8), num_boxes=2, search_depth=10)
    assert abs(lengths.mean() - 5.85) <= 0.3
    assert (lengths <= 5).mean() == pytest.approx(0.45, abs=0.08)
    assert (lengths <= 7).mean() == pytest.approx(0.80, abs=0.06)


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


def test_sizes_without_rooms_are_named() -> None:
    message = "no solvable room in 1000 attempts for dim_room=(3, 5), num_boxes=3, search_depth=30"
    with pytest.raises(NoRoomError, match=re.escape(message)):
        draw_room(np.random.default_rng(0), (3, 5), num_boxes=3, search_depth=30)
