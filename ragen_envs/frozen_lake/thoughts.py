"""What a player on a frozen lake thinks before a move: where the goal lies, which hole is near, and where to go.

All of it can be seen on the map.
"""

from collections.abc import Sequence

import numpy as np

from ragen_envs.frozen_lake.env import FrozenLake
from ragen_envs.frozen_lake.maps import ACTIONS, GOAL, HOLE, ICE, Lake, distances, neighbours
from ragen_envs.wording import PLACES, TRIALS, pick, way


def lake_thought(env: FrozenLake, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `thoughts.explain`."""
    lake, here, action = env.lake, env.position, actions[0]
    if lake.tiles[here] != ICE:
        return f"The walk is over, and I try {action}."
    find = _slippery_reason if lake.is_slippery else _firm_reason
    reason = find(lake, here, action, rng) or pick(rng, *TRIALS)
    return f"{_goal(env, rng)}{reason} {action}."


def _goal(env: FrozenLake, rng: np.random.Generator) -> str:
    """Where the goal lies, with its coordinates if the player is shown them."""
    lake, here = env.lake, divmod(env.position, env.lake.size)
    there = divmod(lake.tiles.index(GOAL), lake.size)
    lies = way(there[0] - here[0], there[1] - here[1], rng)
    said = [f"The goal is {lies}", f"I see the goal {lies}", f"From here the goal lies {lies}", f"Goal: {lies}"]
    if env.shows_coordinates:
        said += [f"I am at {here} and the goal is at {there}, {lies}", f"The goal at {there} is {lies} from {here}"] * 2
    return pick(rng, *said)


def _firm_reason(lake: Lake, here: int, action: str, rng: np.random.Generator) -> str:
    """Why this move on ice that is not slippery; "" unless it is the start of a shortest way."""
    reached = neighbours(lake.size)[here][ACTIONS.index(action)]
    to_goal = distances(lake)
    if to_goal.get(reached) != to_goal[here] - 1:
        return ""
    if lake.tiles[reached] == GOAL:
        return pick(
            rng, ", so the last step is", ", next to me, so I finish with", ". I reach it with", ", one move away:"
        )
    if _steps(lake, reached) > _steps(lake, here):
        return pick(
            rng,
            ". Every direct way is blocked by a hole, so I walk around:",
            ". Holes block the direct way, so I take a detour,",
            ", but no direct way is open, so I go around with",
        )
    holes = _holes_near(lake, here)
    direct = [move for move in holes if _steps(lake, holes[move]) < _steps(lake, here)]
    if direct:
        place = PLACES[direct[0]]
        return pick(
            rng, f". A hole lies {place}, so I go", f", but with a hole {place} I must go", f". Hole {place}, so"
        )
    if holes and rng.random() < 0.6:
        place = PLACES[pick(rng, *holes)]
        return pick(rng, f". There is a hole {place}, so I stay clear of it and go", f", and a hole is {place}. I go")
    return pick(rng, ", so I go", ". I go", ", so my move is", ". I get closer with", ", so I walk", ". A safe step is")


def _slippery_reason(lake: Lake, here: int, action: str, rng: np.random.Generator) -> str:
    """Why this move on slippery ice; "" unless it heads for the goal, or keeps out of the holes next to the player."""
    reached = neighbours(lake.size)[here][ACTIONS.index(action)]
    holes = _holes_near(lake, here)
    possible = {tile for _, tile in lake.transitions(here, action)}
    risks = [PLACES[move] for move, tile in holes.items() if tile in possible]
    avoided = [PLACES[move] for move, tile in holes.items() if tile not in possible]
    if lake.tiles[reached] == HOLE:
        return ""
    if _steps(lake, reached) < _steps(lake, here):
        if risks:
            place = pick(rng, *risks)
            return pick(
                rng, f". I may slip into the hole {place}, but I risk", f". Despite the hole {place} I dare to go"
            )
        if avoided:
            place = pick(rng, *avoided)
            return pick(
                rng, f". I cannot slip into the hole {place} if I go", f", and the hole {place} is out of reach with"
            )
        return pick(rng, ", so I head for it with", ". I head", ", so I go", ". No slip can end in a hole if I go")
    if avoided and not risks:
        place = pick(rng, *avoided)
        return pick(
            rng,
            f". The ice is slippery and a hole is {place}, so I stay out of it with",
            f", but a hole is {place}. Even a slip cannot end there if I choose",
        )
    return ""


def _holes_near(lake: Lake, here: int) -> dict[str, int]:
    """The holes next to the player: the move and the tile."""
    around = zip(ACTIONS, neighbours(lake.size)[here], strict=True)
    return {move: tile for move, tile in around if lake.tiles[tile] == HOLE}


def _steps(lake: Lake, tile: int) -> int:
    """Rows and columns between a tile and the goal."""
    (row, column), (goal_row, goal_column) = divmod(tile, lake.size), divmod(lake.tiles.index(GOAL), lake.size)
    return abs(row - goal_row) + abs(column - goal_column)
