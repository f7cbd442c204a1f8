"""What ALFWorld's games need beside TextWorld: short names of things, and the type of a task."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ragen_envs.textworld.games import DamagedGameError

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


def task_type(game: Path) -> str:
    """The type of a game's task, from the ``traj_data.json`` beside it or the name of a folder; "" for other games.

    Raises:
        DamagedGameError: If that file is no JSON object.
    """
    about = game.with_name("traj_data.json")
    if about.is_file():
        try:
            return str(json.loads(about.read_text(encoding="utf-8")).get("task_type", ""))
        except (ValueError, AttributeError) as error:
            raise DamagedGameError(about, error) from error
    parts = [part.split("-")[0] for part in game.parts]
    return next((part for part in parts if part in TASK_TYPES), "")


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Names of things by their ids, as ALFWorld gives them: what it is, and its number among those of its kind.

    Example:
        >>> list(short_names(["agent1", "mug_bar__minus_00_dot_9", "mug_bar__plus_01_dot_2"]).values())
        ['agent1', 'mug 2', 'mug 1']
    """
    ordered = sorted(ids)
    kinds = {name: _kind(name) for name in ordered}
    left = Counter(kind for kind in kinds.values() if kind)  # ALFWorld counts down
    names = {}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}" if kind else name
        left[kind] -= 1
    return names


def _kind(name: str) -> str:
    """What a thing is; "" where the id does not say it."""
    kind, has_place, _ = name.partition("_bar_")
    if not has_place:
        return ""
    return f"{kind}basin" if "basin" in name else kind
