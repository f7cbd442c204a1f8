"""What a player in a Sokoban room thinks before a move: where the next box must go, and from which side it is pushed.

The solver says which push comes next; the rest can be seen in the room.
"""

from collections.abc import Sequence

import numpy as np

from ragen_envs.sokoban.env import Sokoban
from ragen_envs.sokoban.rooms import ACTIONS, Room
from ragen_envs.sokoban.solver import Solver, State, solver_for
from ragen_envs.wording import TRIALS, pick, way

_SIDES = {"Up": "below it", "Down": "above it", "Left": "on its right", "Right": "on its left"}  # of who pushes so
_DIRECTIONS = {"Up": "up", "Down": "down", "Left": "to the left", "Right": "to the right"}

def sokoban_thought(env: Sokoban, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `thoughts.explain`."""
    room, action = env.room, actions[0]
    if room.boxes <= room.board.targets:
        return f"Every box is on a target, and I try {action}."
    solver = solver_for(room.board)
    reached = _moved(room, action)
    left, then = solver.distance(room.player, room.boxes), solver.distance(*reached)
    if left is None or then != left - 1:
        return f"{_any_box(env, rng)}{pick(rng, *TRIALS)} {action}."
    start, push, end = _next_push(solver, room, reached)
    reason = _now(start, push, end, room, rng) if reached[1] != room.boxes else _later(push, rng)
    return f"{_aim(env, start, end, rng)}{reason} {action}."


def _now(start: int, push: str, end: int, room: Room, rng: np.random.Generator) -> str:
    """Why the push is made from here."""
    side = _SIDES[push]
    if start + room.board.offsets[ACTIONS.index(push)] == end:
        return pick(
            rng, f". I stand {side}, and one push does it:", ", one push away:", f". I am {side} and finish with"
        )
    return pick(
        rng, f", and I stand {side}, so I push", f". I am {side} and push", ", so I push", f". I stand {side} and push"
    )


def _later(push: str, rng: np.random.Generator) -> str:
    """Why the player walks: to the side from which the box is pushed next."""
    side, direction = _SIDES[push], _DIRECTIONS[push]
    return pick(
        rng,
        f". To push it {direction} I must stand {side}, so I go",
        f". I have to get {side} to push it {direction}, so I walk",
        f", and the next push is {direction}, so I must be {side}. I go",
        f". I cannot pull, so I walk to the square {side} with",
        f", so I first get {side}:",
    )


def _aim(env: Sokoban, box: int, target: int, rng: np.random.Generator) -> str:
    """Where a box must go."""
    room, width = env.room, env.room.board.width
    at, there = divmod(box, width), divmod(target, width)
    goes = way(there[0] - at[0], there[1] - at[1], rng) if box != target else ""
    if not goes:  # it is on a target that it leaves and comes back to
        return "A box is in the way on its target"
    if env.shows_coordinates:
        said = [f"The box at {at} must get to {there}, {goes}", f"From {at} the box has to go {goes}, to {there}"]
        return pick(rng, *said, f"The box at {at} must go {goes}")
    if len(room.boxes) > 1:
        from_me = way(at[0] - room.player // width, at[1] - room.player % width, rng)
        return pick(rng, f"I want the box {from_me} from me to go {goes}", f"The box {from_me} from me must go {goes}")
    said = [f"The box must go {goes}", f"The target is {goes} from the box", f"The box has to move {goes}"]
    return pick(rng, *said, f"Box to target: {goes}")


def _any_box(env: Sokoban, rng: np.random.Generator) -> str:
    """Where a box lies that is on no target; its way is told only where there is one target."""
    room, width = env.room, env.room.board.width
    box = min(room.boxes - room.board.targets)
    if len(room.boxes) == 1:
        return _aim(env, box, min(room.board.targets), rng)
    return f"A box is {way(box // width - room.player // width, box % width - room.player % width, rng)} from me"


def _moved(room: Room, action: str) -> State:
    """The player's square and those of the boxes after a move."""
    offset = room.board.offsets[ACTIONS.index(action)]
    ahead, beyond = room.player + offset, room.player + 2 * offset
    free = room.board.floor - room.boxes
    if ahead in free:
        return ahead, room.boxes
    if ahead in room.boxes and beyond in free:
        return ahead, room.boxes - {ahead} | {beyond}
    return room.player, room.boxes


def _next_push(solver: Solver, room: Room, reached: State) -> tuple[int, str, int]:
    """The next push of a shortest solution that goes on from `reached`.

    Returns:
        Where the box is now, the direction of its next push, and where it will be at the end.
    """
    state, before = reached, room.boxes
    while state[1] == before:  # only walks; the solution has a push, because a box is on no target
        state = _moved(Room(room.board, state[1], state[0]), solver.best_move(*state) or ACTIONS[0])
    (start,), (box,) = before - state[1], state[1] - before
    push = ACTIONS[room.board.offsets.index(box - start)]
    if len(before) == 1:
        return start, push, min(room.board.targets)
    while (move := solver.best_move(*state)) is not None:
        after = _moved(Room(room.board, state[1], state[0]), move)
        if box in state[1] - after[1]:
            (box,) = after[1] - state[1]
        state = after
    return start, push, box
