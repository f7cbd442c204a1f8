"""Shortest solutions of Sokoban rooms: A* over single moves, with dead squares pruned.

A solution is shortest in moves, counting both pushes and steps, because an action limit and the step penalty count
these. It is good for rooms of the sizes that language models play. A hard level of a public set reaches `MAX_STATES`,
which is an error.
"""

import functools
import heapq
import itertools
from collections.abc import Iterator

from ragen_envs.errors import EnvError
from ragen_envs.sokoban.rooms import ACTIONS, Board

State = tuple[int, frozenset[int]]  # the player's square, the squares of the boxes

MAX_STATES = 1_000_000


class SearchLimitError(EnvError, RuntimeError):
    """The search for a solution was stopped at its limit."""


class Solver:
    """Finds how far a board's states are from a solution. Answers do not depend on earlier questions.

    Args:
        board: Floor and targets.
    """

    def __init__(self, board: Board) -> None:
        """Finds, for a box on each square, the pushes to the nearest target."""
        self._board = board
        self._pushes = _pushes_to_target(board)
        self._distances: dict[State, int | None] = {}
        self._moves: dict[State, str | None] = {}

    def distance(self, player: int, boxes: frozenset[int]) -> int | None:
        """The fewest moves that bring every box onto a target; None if it is impossible.

        Raises:
            SearchLimitError: If the search visited a million states.
        """
        state = (player, boxes)
        if state not in self._distances:
            path = self._search(state, None)
            self._distances |= {state: None} if path is None else _countdown(path)
        return self._distances[state]

    def best_move(self, player: int, boxes: frozenset[int]) -> str | None:
        """The first of `ACTIONS` that starts a shortest solution; None if there is no solution or nothing to solve.

        Raises:
            SearchLimitError: If the search visited a million states.
        """
        state = (player, boxes)
        if state not in self._moves:
            distance = self.distance(player, boxes)
            moves = self._reachable(state) if distance else ()
            nearer = (action for action, reached in moves if self._is_within(reached, (distance or 0) - 1))
            self._moves[state] = next(nearer, None)
        return self._moves[state]

    def after(self, state: State, action: str) -> State:
        """The state after an action; the same one if nothing moves."""
        return dict(self._reachable(state)).get(action, state)

    def _is_within(self, state: State, moves: int) -> bool:
        """Whether a state has a solution of at most so many moves. Longer ones are not searched."""
        if state not in self._distances:
            path = self._search(state, moves)
            if path is None:
                return False
            self._distances |= _countdown(path)
        distance = self._distances[state]
        return distance is not None and distance <= moves

    def _reachable(self, state: State) -> Iterator[tuple[str, State]]:
        """Each action that changes a state, and the new state."""
        player, boxes = state
        floor = self._board.floor
        for action, offset in zip(ACTIONS, self._board.offsets, strict=True):
            ahead = player + offset
            if ahead in boxes:
                beyond = ahead + offset
                if beyond in floor and beyond not in boxes:
                    yield action, (ahead, boxes - {ahead} | {beyond})
            elif ahead in floor:
                yield action, (ahead, boxes)

    def _estimate(self, player: int, boxes: frozenset[int]) -> int | None:
        """A lower bound on the moves left, which each move lowers by at most one; None if a box is on a dead square.

        Every box needs its pushes, and each push is a move. Before the first push the player walks to a box.
        """
        pushes, width = self._pushes, self._board.width
        total, walk = 0, self._board.width * self._board.height
        row, column = divmod(player, width)
        for box in boxes:
            needed = pushes.get(box)
            if needed is None:
                return None
            total += needed
            walk = min(walk, abs(box // width - row) + abs(box % width - column))
        return total + walk - 1 if total else 0

    def _search(self, start: State, limit: int | None) -> list[State] | None:
        """The states of a shortest solution, or None if there is none of at most `limit` moves."""
        bound = self._estimate(*start)
        if bound is None:
            return None
        came: dict[State, State | None] = {start: None}
        cost = {start: 0}
        # Of equal bounds the latest entry comes first, because deeper states end the search sooner.
        order = itertools.count(0, -1)
        queue: list[tuple[int, int, State]] = [(bound, next(order), start)]
        done: set[State] = set()
        while queue:
            state = heapq.heappop(queue)[2]
            if state in done:
                continue
            done.add(state)
            if state[1] <= self._board.targets:
                return _path(came, state)
            if len(came) > MAX_STATES:
                raise SearchLimitError(
                    f"gave up after {MAX_STATES:,} states of a room with {len(start[1])} boxes on "
                    f"{len(self._board.floor)} squares, which is too large for this solver; use a smaller room or "
                    "fewer boxes, or play it without oracle"
                )
            spent = cost[state] + 1
            for _, reached in self._reachable(state):
                bound = self._estimate(*reached)
                if bound is None or spent >= cost.get(reached, spent + 1):
                    continue
                if limit is not None and spent + bound > limit:
                    continue
                cost[reached] = spent
                came[reached] = state
                heapq.heappush(queue, (spent + bound, next(order), reached))
        return None


@functools.lru_cache(maxsize=512)
def solver_for(board: Board) -> Solver:
    """The solver of a board; it is cached."""
    return Solver(board)


def _pushes_to_target(board: Board) -> dict[int, int]:
    """The fewest pushes that bring a single box to a target, for each square from which it is possible."""
    pushes = dict.fromkeys(board.targets, 0)
    frontier = list(board.targets)
    for square in frontier:  # it grows during the loop: breadth-first search
        for offset in board.offsets:
            # The box was pushed from `before` by a player who stood on `stand`.
            before, stand = square - offset, square - 2 * offset
            if before not in pushes and before in board.floor and stand in board.floor:
                pushes[before] = pushes[square] + 1
                frontier.append(before)
    return pushes


def _path(came: dict[State, State | None], end: State) -> list[State]:
    """The states from the start to `end`."""
    path = [end]
    step = came[end]
    while step is not None:
        path.append(step)
        step = came[step]
    return path[::-1]


def _countdown(path: list[State]) -> dict[State, int]:
    """The moves left in each state of a shortest solution."""
    return {reached: left for left, reached in enumerate(reversed(path))}
