"""The solver: against breadth-first search, and on rooms solved by hand."""

import numpy as np
import pytest

from ragen_envs import Sokoban, best_action
from ragen_envs.sokoban import solver
from ragen_envs.sokoban.rooms import Board, Room, draw_room
from ragen_envs.sokoban.solver import SearchLimitError, Solver


def moves_to_solve(room: Room) -> int | None:
    """Fewest moves, by breadth-first search over the whole state space, with no pruning at all."""
    board = room.board
    layer, seen, moves = {(room.player, room.boxes)}, {(room.player, room.boxes)}, 0
    while layer:
        if any(boxes == board.targets for _, boxes in layer):
            return moves
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
    return None


@pytest.mark.parametrize(("size", "boxes", "count"), [((6, 6), 1, 200), ((6, 7), 2, 60), ((6, 6), 3, 15)], ids=str)
def test_solutions_are_shortest(size: tuple[int, int], boxes: int, count: int) -> None:
    for seed in range(count):
        room = draw_room(np.random.default_rng(seed), size, boxes, search_depth=60)
        assert Solver(room.board).distance(room.player, room.boxes) == moves_to_solve(room)


def test_states_along_random_play_have_the_right_distance() -> None:
    """From any state on, dead ones included: one action changes the distance by at most one."""
    env = Sokoban(num_boxes=2)
    rng = np.random.default_rng(0)
    dead = 0
    for seed in range(12):
        env.reset(seed=seed)
        for _ in range(25):
            room = env.room
            distance = Solver(room.board).distance(room.player, room.boxes)
            assert distance == moves_to_solve(room)
            dead += distance is None
            if env.step(env.actions[rng.integers(4)])[2]:
                break
    assert dead > 0


@pytest.mark.parametrize("env_kwargs", [{}, {"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10}], ids=str)
def test_oracle_solves_in_as_many_moves_as_the_solver_says(env_kwargs: dict) -> None:
    env = Sokoban(**env_kwargs)
    for seed in range(100):
        env.reset(seed=seed)
        room = env.room
        distance = Solver(room.board).distance(room.player, room.boxes)
        rewards = []
        while not env.step(best_action(env, 100))[2]:
            rewards.append(1)
        assert len(rewards) + 1 == distance


def test_a_solved_room_and_a_dead_one() -> None:
    board = Board(3, 6, frozenset({7, 8, 9, 10}), frozenset({9}))
    assert Solver(board).distance(7, frozenset({9})) == 0
    assert Solver(board).best_move(7, frozenset({9})) is None
    assert Solver(board).distance(7, frozenset({8})) == 1
    assert Solver(board).best_move(7, frozenset({8})) == "Right"
    # At the right end there is no room to stand on the other side of the box.
    assert Solver(board).distance(7, frozenset({10})) is None
    assert Solver(board).best_move(7, frozenset({10})) is None


def test_oracle_still_acts_in_a_dead_room() -> None:
    env = Sokoban()
    env.reset(seed=0)
    corner = min(env.room.board.floor)
    env._boxes = frozenset({corner})
    room = env.room
    if room.board.targets == room.boxes:
        pytest.fail("pick a seed whose top-left floor square is no target")
    assert Solver(room.board).distance(room.player, room.boxes) is None
    assert best_action(env, 10) in env.actions


def test_giving_up_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_STATES", 5)
    room = draw_room(np.random.default_rng(1), (8, 8), 2, 30)
    with pytest.raises(SearchLimitError, match="gave up after 5 states of a room with 2 boxes on .*; use a smaller"):
        Solver(room.board).distance(room.player, room.boxes)


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


def test_best_move_is_the_first_of_the_best() -> None:
    for seed in range(60):
        room = draw_room(np.random.default_rng(seed), (6, 7), 2, 60)
        solver, env = Solver(room.board), Sokoban((6, 7), 2)
        distance = solver.distance(room.player, room.boxes)
        env.reset(seed=0)
        env._draw = lambda level, room=room: room
        best = []
        for action in env.actions:
            env.reset(seed=0)
            env.step(action)
            after = env.room
            left = solver.distance(after.player, after.boxes)
            if left is not None and left == distance - 1:
                best.append(action)
        assert solver.best_move(room.player, room.boxes) == best[0]
