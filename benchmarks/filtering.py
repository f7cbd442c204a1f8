"""What does it change to train only on the groups with the most uncertain outcome, 25, 50, 75 or 100 % of them?

Run it: ``python benchmarks/filtering.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import GAE, STARPO_S, TASKS

_SHARES = (0.25, 0.5, 0.75, 1.0)


def _variants(label: str, **options: Any) -> dict[str, Variant]:
    """All but the share is StarPO-S: no KL term, clip 0.2/0.28. Its own share is a quarter."""
    return {
        f"{label.lower()}_{100 * share:.0f}": Variant(
            f"{label}, keep {share:.0%}",
            STARPO_S,
            options={**options, **({} if share == 0.25 else {"filter_ratio": share})},
        )
        for share in _SHARES
    }


_GROUP, _GAE = _variants("group"), _variants("GAE", **GAE)

QUESTION = Question(
    name="filtering",
    title="What does it change to train only on the groups with the most uncertain outcome?",
    tasks={
        "frozenlake": replace(TASKS["frozenlake"], variants=(*_GROUP, *_GAE)),
        "sokoban": replace(TASKS["sokoban"], variants=tuple(_GAE)),
        "frozenlake_slippery": replace(TASKS["frozenlake_slippery"], variants=tuple(_GAE)),
        "bandit": replace(
            TASKS["bandit"], variants=(*_GROUP, *_GAE), changes=dict.fromkeys(_GROUP, {"scale_rewards": "none"})
        ),
    },
    variants={**_GROUP, **_GAE},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
