"""RAGEN-2: which filter by the spread of returns helps, and is the gradient where the spread is?

Run it: ``python benchmarks/variance_filter.py``; ``--help`` lists the options. A quarter of the groups (StarPO-S)
against the fewest groups that hold nine tenths of the standard deviations (RAGEN-2's code) or of the variances (its
paper), and no filter. The runs named *measured* also log the gradient of each quarter of the groups, ordered by their
spread (``learning/measure.py``). The embedded model has no thoughts; with notes in their place the mutual information
between a message and the note after it is measured.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import GAE, STARPO_S, TASKS
from reasoning import noted

_FILTERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "25": ("25 % of the groups", {}),
    "100": ("all groups", {"filter_ratio": 1.0}),
    "top_p": ("0.9 of the std", {"filter_strategy": "top_p", "filter_ratio": 0.9}),
    "variance": ("0.9 of the variance", {"filter_strategy": "top_p_variance", "filter_ratio": 0.9}),
}


def _variants(label: str, form: Mapping[str, Any]) -> dict[str, Variant]:
    """All but the filter is StarPO-S: no KL term, clip 0.2/0.28."""
    return {
        f"{label.lower()}_{name}": Variant(f"{label}, {said}", STARPO_S, options={**form, **chosen})
        for name, (said, chosen) in _FILTERS.items()
    }


_GROUP, _PPO = _variants("group", {}), _variants("GAE", GAE)
_MEASURED = {"measured": replace(_GROUP["group_100"], label="group, all groups, measured", signal_every=4)}
_PAPER = ("gae_25", "gae_100", "gae_variance")  # two of them are filtering.py's
_NOTES = ("group_100", "group_variance")

QUESTION = Question(
    name="variance_filter",
    title="Which filter by the spread of returns helps, and is the gradient where the spread is?",
    tasks={
        "frozenlake": replace(TASKS["frozenlake"], variants=(*_GROUP, *_PPO, *_MEASURED)),
        "sokoban": replace(TASKS["sokoban"], variants=(*_PAPER, *_MEASURED)),
        "frozenlake_slippery": replace(TASKS["frozenlake_slippery"], variants=_PAPER),
        "bandit": replace(
            TASKS["bandit"],
            variants=(*_PPO, "group_100", "group_variance", *_MEASURED),
            changes=dict.fromkeys(("group_100", "group_variance", *_MEASURED), {"scale_rewards": "none"}),
        ),
        "frozenlake, with notes of three lengths": noted("frozenlake", "free", _NOTES),
    },
    variants={**_GROUP, **_PPO, **_MEASURED},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
