"""Trajectories of a pretrained model's runs as text, from the first and from the last rollout that was recorded.

They are of different start states, the first ones of their rollouts: nobody has chosen them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pages.markdown import text

_MOST_TURNS = 3


def transcripts(content: Mapping[str, Any]) -> str:
    """The first trajectory of the first and of the last recorded rollout of one run a game."""
    lines: list[str] = []
    for game in content["games"]:
        runs = [run for run in content["runs"].values() if run["game"] == game]
        run = next((each for each in runs if each["evaluations"] and each.get("examples")), None)
        if run is None:
            continue
        for when, label in (("before", "first"), ("after", "last")):
            shown = run["examples"][when][0]
            end = "success" if shown["success"] else "no success"
            rollout = f"`{run['name']}`, the {label} rollout (update {shown['step']}): {end}."
            lines += [rollout, "", "```text", *_as_text(shown["turns"]), "```", ""]
    return text(lines[:-1] or ["No run with trajectories is finished."])


def _as_text(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Observations and replies, the reply after an arrow; how many turns are left out."""
    lines: list[str] = []
    for turn in turns[:_MOST_TURNS]:
        lines += [*turn["observation"].splitlines(), *(f"> {line}" for line in turn["reply"].splitlines()), ""]
    if len(turns) > _MOST_TURNS:
        lines += [f"({len(turns) - _MOST_TURNS} more turns)", ""]
    return [line.replace("```", "'''") for line in lines[:-1]]
