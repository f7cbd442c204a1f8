"""Online-k: what does it cost to make k updates with the trajectories of one rollout, at an equal number of both?

Run it: ``python benchmarks/freshness.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import TASKS

# One rollout is k times as large, and each k-th of it is one update: the last update learns from trajectories of the
# policy of k - 1 updates ago.
_UPDATES = (1, 2, 5, 10)
VARIANTS = {
    f"online_{updates}": Variant(
        f"online-{updates}",
        options={"per_device_train_batch_size": 64, "steps_per_generation": updates},
        smoke={"per_device_train_batch_size": 4, "steps_per_generation": min(updates, 4)},
        paper={"steps_per_generation": 16 * updates},
    )
    for updates in _UPDATES
}

QUESTION = Question(
    name="freshness",
    title="What does it cost to make k updates with the trajectories of one rollout?",
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=64 * 80, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
