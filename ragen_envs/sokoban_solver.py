"""Shortest solutions of Sokoban rooms: A* over single moves, with dead squares pruned.

A solution is shortest in moves, pushes and steps alike, because that is what an action budget and the step penalty
count. Good for rooms of the sizes that language models play; a hard level of a public set runs into `MAX_STATES`, and
that is an error that says so. Left out: macro moves, corral pruning and whatever else large levels need.
"""

import functools
import heapq

from ragen_envs.sokoban_rooms import ACTIONS, Board

State = tuple[int, frozenset[int]]  # the player's square, the squares of the boxes

MAX_STATES = 1_000_000


class SearchLimitError(RuntimeError):
    """The search for a solution was given up."""


class Solver:
    """Knows the shortest way to solve one board from the states it was asked about, and from all on the way.

    Args:
        board: Floor and targets.
    """

    def __init__(self, board: Board) -> None:
        """Measures how far each square is from its nearest target for a box."""
        self._board = board
        self._pushes = _pushes_to_target(board)
        self._known: dict[State, tuple[int, str] | None] = {}

    def distance(self, player: int, boxes: frozenset[int]) -> int | None:
        """Fewest moves that bring every box onto a target; None if none do.

        Raises:
            SearchLimitError: If a million states did not suffice to tell.
        """
        known = self._look_up((player, boxes))
        return None if known is None else known[0]

    def best_move(self, player: int, boxes: frozenset[int]) -> str | None:
        """The first action of a shortest solution; None if there is no solution, or nothing left to solve.

        Raises:
            SearchLimitError: If a million states did not suffice to tell.
        """
        known = self._look_up((player, boxes))
        return (known[1] or None) if known is not None else None

    def _look_up(self, state: State) -> tuple[int, str] | None:
        """Moves left and the next of them, "" at the end."""
        if state not in self._known:
            path = self._search(state)
            if path is None:
                self._known[state] = None
            else:
                for left, (reached, action) in enumerate(reversed(path)):
                    self._known[reached] = (left, action)
        return self._known[state]

    def _estimate(self, player: int, boxes: frozenset[int]) -> int | None:
        """A lower bound on the moves left that never falls by more than one a move; None on a dead square.

        Every box needs its pushes, and each push is a move. Before the first push the player walks up to a box.
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

    def _search(self, start: State) -> list[tuple[State, str]] | None:
        """A shortest path as (state, action) pairs, its last action ""; None if there is none."""
        bound = self._estimate(*start)
        if bound is None:
            return None
        moves = tuple(zip(ACTIONS, self._board.offsets, strict=True))
        floor, targets = self._board.floor, self._board.targets
        came: dict[State, tuple[State, str] | None] = {start: None}
        cost = {start: 0}
        # Of equal bounds the later entry comes first: deeper states end the search sooner.
        queue: list[tuple[int, int, State]] = [(bound, 0, start)]
        entries = 0
        done: set[State] = set()
        while queue:
            state = heapq.heappop(queue)[2]
            if state in done:
                continue
            done.add(state)
            player, boxes = state
            if boxes <= targets:
                return _path(came, state)
            if len(came) > MAX_STATES:
                raise SearchLimitError(f"no solution among {MAX_STATES} states; use a smaller room or fewer boxes")
            spent = cost[state] + 1
            for action, offset in moves:
                ahead = player + offset
                moved = boxes
                if ahead in boxes:
                    beyond = ahead + offset
                    if beyond not in floor or beyond in boxes:
                        continue
                    moved = boxes - {ahead} | {beyond}
                elif ahead not in floor:
                    continue
                reached = (ahead, moved)
                if spent >= cost.get(reached, spent + 1):
                    continue
                bound = self._estimate(ahead, moved)
                if bound is None:
                    continue
                cost[reached] = spent
                came[reached] = (state, action)
                entries += 1
                heapq.heappush(queue, (spent + bound, -entries, reached))
        return None


@functools.lru_cache(maxsize=512)
def solver_for(board: Board) -> Solver:
    """The solver of a board, kept for later questions about it."""
    return Solver(board)


def _pushes_to_target(board: Board) -> dict[int, int]:
    """For each square from which a lone box can get to a target, how many pushes that takes."""
    pushes = dict.fromkeys(board.targets, 0)
    frontier = list(board.targets)
    for square in frontier:  # grows as it is walked: breadth first
        for offset in board.offsets:
            # The box came from `before`, pushed by a player who stood behind it.
            before, stand = square - offset, square - 2 * offset
            if before not in pushes and before in board.floor and stand in board.floor:
                pushes[before] = pushes[square] + 1
                frontier.append(before)
    return pushes


def _path(came: dict[State, tuple[State, str] | None], end: State) -> list[tuple[State, str]]:
    path = [(end, "")]
    step = came[end]
    while step is not None:
        path.append(step)
        step = came[step[0]]
    return path[::-1]
