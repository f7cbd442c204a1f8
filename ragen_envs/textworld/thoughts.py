"""What a player of a text adventure thinks before a command: what it needs is here, or in the player's hands.

A command that is admissible proves it: what can be dropped is carried, what can be opened is closed.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragen_envs.wording import TRIALS, pick

_HERE = ("the {0} is here", "I see the {0}", "I am near the {0}")
_CARRIED = ("I carry the {0}", "I have the {0}", "the {0} is in my hands")
_BOTH = ("I carry the {0}, and the {1} is here", "I have the {0} and I am near the {1}", "I am at the {1} with the {0}")
# What is true where a command is admissible, with its first and its second thing.
_REASONS = (
    (r"(?:put|insert|move) (.+?) (?:on|into|to|in/on) (.+)", _BOTH),
    (r"(?:heat|cool|clean|slice) (.+?) with (.+)", _BOTH),
    (r"(?:un)?lock (?P<second>.+?) with (?P<first>.+)", _BOTH),
    (r"take (.+?) from (.+)", ("I see the {0} at the {1}", "the {1} has the {0}", "the {0} is at the {1}")),
    (r"take (.+)", _HERE),
    (r"(?:drop|eat) (.+)", _CARRIED),
    (r"open (.+)", ("the {0} is closed", "the {0} is not open")),
    (r"close (.+)", ("the {0} is open", "the {0} is not closed")),
    (r"go to (.+)", ("there is a {0} to go to", "I can go to the {0}")),
    (r"go (.+)", ("there is a way {0}", "the way {0} is free", "I can walk {0} from here")),
    (r"use (.+)", _HERE),
)
_SO = (", so I do", ". I go on with", ", so my command is", ". Next comes", ", so the next step is", ". I choose")


def adventure_thought(env: Any, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `TextEnv.explain`."""
    scene, action = env.scene, actions[0]
    if scene.won or scene.lost:
        return f"The game is over, and I try {action}."
    said = _reason(action, scene.objective, rng) if action in scene.commands else ""
    said = said or pick(rng, "the task is not done yet", "there is more to do", "I am not done with the task")
    follows = _SO if env.plan[:1] == (action,) else TRIALS
    return f"{said[0].upper()}{said[1:]}{pick(rng, *follows)} {action}."


def _reason(action: str, objective: str, rng: np.random.Generator) -> str:
    """What makes the command possible, and whether the task has its thing; "" for one that only looks."""
    for pattern, reasons in _REASONS:
        found = re.fullmatch(pattern, action)
        if found is not None:
            named = found.groupdict()
            things = (named["first"], named["second"]) if named else found.groups()
            said = pick(rng, *reasons).format(*things)
            asked = re.search(rf"\b{re.escape(things[0])}\b", objective, re.IGNORECASE) and rng.random() < 0.4
            return f"the task says {things[0]}, and {said}" if asked else said
    return ""
