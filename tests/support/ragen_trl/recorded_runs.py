"""Run folders with recorded trajectories for the tests of the viewer: a lake, a room, and a model that means harm."""

from pathlib import Path
from typing import Any

from ragen_trl.reporting.recorder import write_recording
from tests.support.ragen_trl.reports import changed, write_run

HOSTILE = (
    "</script><img src=x onerror=alert(1)><script>document.title='owned'</script>",
    "<!--<script>",
    "\ud800 lone, \x00 nul, \x1b[31m, \u202eturned\u202c, \u2028, &lt;b&gt;",
    "word " * 20_000,
    "{{ 7 * 7 }} {% raw %} ]]> $x$",
)
LAKE = "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal\n\nTurn 1 of 5\nState:\nP_O\n__G\n___\nLeft: 9"
ROOM = "Push.\n! wall, . floor, o target, B box, @ you\n\nState:\n!!!!\n!@Bo\n!..!\n!!!!\nLeft: 9"
SHOP = "Page 1 [SEP] A pot [SEP] $5"


def content(env: str, observation: str, replies: list[str], step: int = 1, **of_turn: Any) -> dict[str, Any]:
    """A rollout of groups of two; each member gives one reply of three tokens and earns its number."""
    vocabulary = dict(enumerate(["ask", "", "né", *replies]))

    def trajectory(place: int) -> dict[str, Any]:
        tokens = {"prompt": [0], "tokens": [1, 2, 3 + place], "advantage": [-1.0, 0.0, 0.5]}
        said = {"observation": observation, "reply": replies[place], "actions": ["Up"]}
        turn = {**said, "reward": float(place), **tokens, **of_turn}
        named = {"group": place // 2, "member": place % 2, "env": env, "seed": 10 + place // 2, "outcome_seed": None}
        scores = {"return": float(place), "success": place % 2 == 1, "kept": True, "end": ""}
        return {**named, **scores, "turns": [turn]}

    trajectories = [trajectory(place) for place in range(len(replies))]
    return {"step": step, "group_size": 2, "vocabulary": vocabulary, "trajectories": trajectories}


def recorded_run(folder: Path, seed: int = 1, *contents: dict[str, Any]) -> Path:
    """A finished run with these rollouts, and without logged steps, since drawing curves takes longest."""
    for found in contents:
        write_recording(folder, found)
    return write_run(folder, changed(seed=seed), [])
