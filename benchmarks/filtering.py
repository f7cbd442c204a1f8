"""What does it change to train only on the groups with the most uncertain outcome, 25, 50, 75 or 100 % of them?

Run it: ``python benchmarks/filtering.py``; ``--help`` lists the options. The task ``sokoban_200`` goes to the end of
RAGEN's curves, 200 rollouts.
"""

import sys
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import GAE, IN_FOUR_UPDATES, STARPO_S, TASKS, to_the_end

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
# Eight trajectories an update, whatever is kept, as RAGEN's mini-batches have one size.
_EIGHT_AN_UPDATE = {
    "gae_50": {"per_device_train_batch_size": 16, "steps_per_generation": 2},
    "gae_100": IN_FOUR_UPDATES,
}

QUESTION = Question(
    name="filtering",
    title="What does it change to train only on the groups with the most uncertain outcome?",
    tasks={
        "frozenlake": replace(TASKS["frozenlake"], variants=(*_GROUP, *_GAE)),
        "sokoban_200": to_the_end("sokoban", ("gae_25", *_EIGHT_AN_UPDATE), _EIGHT_AN_UPDATE),
        "frozenlake_slippery": replace(TASKS["frozenlake_slippery"], variants=tuple(_GAE)),
        "bandit": replace(
            TASKS["bandit"], variants=(*_GROUP, *_GAE), changes=dict.fromkeys(_GROUP, {"scale_rewards": "none"})
        ),
    },
    variants={**_GROUP, **_GAE},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
