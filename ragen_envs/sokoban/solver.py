"""Shortest solutions of Sokoban rooms: A* over single moves, pushes and steps, with dead squares pruned.

It is good for rooms of the sizes that language models play. A hard level of a public set reaches `MAX_STATES`.
"""

import functools
import heapq
import itertools
import math
from collections.abc import Iterator

from ragen_envs.sokoban.rooms import ACTIONS, Board, RoomError

State = tuple[int, frozenset[int]]  # the player's square, the squares of the boxes

MAX_STATES = 1_000_000


class Solver:
    """Finds how far a board's states are from a solution. Answers do not depend on earlier questions."""

    def __init__(self, board: Board) -> None:
        """Finds, for a box on each square from which it is possible, the fewest pushes to a target."""
        self._board = board
        self._distances: dict[State, float] = {}
        self._moves: dict[State, str | None] = {}
        self._pushes = dict.fromkeys(board.targets, 0)
        frontier = list(board.targets)
        for square in frontier:  # it grows during the loop: breadth-first search
            for offset in board.offsets:
                # The box was pushed from `before` by a player who stood on `stand`.
                before, stand = square - offset, square - 2 * offset
                if before not in self._pushes and before in board.floor and stand in board.floor:
                    self._pushes[before] = self._pushes[square] + 1
                    frontier.append(before)

    def distance(self, player: int, boxes: frozenset[int], most: float = math.inf) -> float:
        """The fewest moves that bring every box onto a target; infinity if there are none, or not so few as `most`.

        Raises:
            RoomError: If the search visited a million states.
        """
        state = (player, boxes)
        if state not in self._distances:
            path = self._search(state, most)
            if path is None and most < math.inf:
                return math.inf
            self._distances |= {state: math.inf} if path is None else {one: left for left, one in enumerate(path)}
        return self._distances[state] if self._distances[state] <= most else math.inf

    def best_move(self, player: int, boxes: frozenset[int]) -> str | None:
        """The first of `ACTIONS` that starts a shortest solution; None if there is no solution or nothing to solve."""
        state = (player, boxes)
        if state not in self._moves:
            left = self.distance(player, boxes)
            moves = self._reachable(state) if 0 < left < math.inf else ()
            nearer = (action for action, reached in moves if self.distance(*reached, left - 1) < left)
            self._moves[state] = next(nearer, None)
        return self._moves[state]

    def after(self, state: State, action: str) -> State:
        """The state after an action; the same one if nothing moves."""
        return dict(self._reachable(state)).get(action, state)

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

    def _estimate(self, player: int, boxes: frozenset[int]) -> float:
        """A lower bound on the moves left, which each move lowers by at most one; infinity for a box on a dead square.

        Every box needs its pushes, and each push is a move. Before the first push the player walks to a box.
        """
        width = self._board.width
        row, column = divmod(player, width)
        total = sum(self._pushes.get(box, math.inf) for box in boxes)
        walk = min(abs(box // width - row) + abs(box % width - column) for box in boxes)
        return total + walk - 1 if total else 0

    def _search(self, start: State, most: float) -> list[State] | None:
        """The states of a shortest solution from its end, or None if there is none of at most `most` moves."""
        came: dict[State, State | None] = {start: None}
        cost = {start: 0}
        # Of equal bounds the latest entry comes first, because deeper states end the search sooner.
        order = itertools.count(0, -1)
        queue: list[tuple[float, int, State]] = []
        if self._estimate(*start) < math.inf:
            queue.append((0, next(order), start))
        done: set[State] = set()
        while queue:
            state = heapq.heappop(queue)[2]
            if state in done:
                continue
            done.add(state)
            if state[1] <= self._board.targets:
                path, before = [state], came[state]
                while before is not None:
                    path.append(before)
                    before = came[before]
                return path
            if len(came) > MAX_STATES:
                size = f"{len(start[1])} boxes on {len(self._board.floor)} squares"
                raise RoomError(f"gave up after {MAX_STATES:,} states of {size}; play this room without oracle")
            spent = cost[state] + 1
            for _, reached in self._reachable(state):
                bound = spent + self._estimate(*reached)
                if bound < math.inf and bound <= most and spent < cost.get(reached, spent + 1):
                    cost[reached], came[reached] = spent, state
                    heapq.heappush(queue, (bound, next(order), reached))
        return None


solver_for = functools.lru_cache(maxsize=512)(Solver)
"""The solver of a board."""
