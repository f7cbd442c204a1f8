"""Does the PPO form learn more from a rollout in four updates, as in RAGEN, or in one?

Run it: ``python benchmarks/updates_per_rollout.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, TASKS

_ONE = {"advantage": "gae", **CRITIC}
# RAGEN: mini-batches of 32 of the 128 trajectories, one pass, for actor and critic alike.
_FOUR = {**_ONE, "per_device_train_batch_size": 32, "steps_per_generation": 4}
_PAPER_FOUR = {"advantage": "gae", "gradient_accumulation_steps": 4, "steps_per_generation": 16}
_SMOKE_FOUR = {"per_device_train_batch_size": 4}

# Adam's steps do not shrink with their number, so that four at the rate of one move the policy up to four times as far.
# The rates are for the tiny model: 5e-4 elsewhere in these experiments.
VARIANTS = {
    "one": Variant("1 update", options=_ONE),
    "critic_four": Variant(
        "1 update, critic 4", options={**_ONE, "critic_batch_size": 32}, smoke={"critic_batch_size": 4}
    ),
    "one_fast": Variant("1 update at 4 times the rate", options={**_ONE, "learning_rate": 2e-3}),
    "four": Variant("4 updates, critic 4", options=_FOUR, smoke=_SMOKE_FOUR, paper=_PAPER_FOUR),
    "four_slow": Variant(
        "4 updates at a quarter of the rate, critic 4",
        options={**_FOUR, "learning_rate": 1.25e-4},
        smoke=_SMOKE_FOUR,
        paper={**_PAPER_FOUR, "learning_rate": 2.5e-7},
    ),
}

QUESTION = Question(
    name="updates_per_rollout",
    title="Does the PPO form learn more from a rollout in four updates, as in RAGEN, or in one?",
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=128 * 24, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
