"""Does the PPO form learn more from a rollout in four updates, as in RAGEN, or in one?

Run it: ``python benchmarks/updates_per_rollout.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, TASKS

# RAGEN: mini-batches of 32 of the 128 trajectories, one pass, for actor and critic alike.
_CRITIC_FOUR = {"critic_batch_size": 32}
_BOTH_FOUR = {"per_device_train_batch_size": 32, "steps_per_generation": 4}
_PAPER_FOUR = {"gradient_accumulation_steps": 4, "steps_per_generation": 16}
_FORMS = {"gae": "GAE", "bi_level_gae": "bi-level GAE"}
# Adam's steps do not shrink with the number of updates: four at the rate of one move the policy up to four times as
# far. At a quarter of the rate it is the number alone that differs.
_QUARTER_RATE = {"learning_rate": 1.25e-4}


def _variants(form: str, label: str) -> dict[str, Variant]:
    ppo = {"advantage": form, **CRITIC}
    return {
        f"{form}_one": Variant(f"{label}: 1 update", options=ppo),
        f"{form}_critic": Variant(
            f"{label}: 1 update, critic 4", options={**ppo, **_CRITIC_FOUR}, smoke={"critic_batch_size": 4}
        ),
        f"{form}_both": Variant(
            f"{label}: 4 updates, critic 4",
            options={**ppo, **_BOTH_FOUR},
            smoke={"per_device_train_batch_size": 4},
            paper={"advantage": form, **_PAPER_FOUR},
        ),
        f"{form}_slow": Variant(
            f"{label}: 4 updates at a quarter of the rate, critic 4",
            options={**ppo, **_BOTH_FOUR, **_QUARTER_RATE},
            smoke={"per_device_train_batch_size": 4},
            paper={"advantage": form, **_PAPER_FOUR, "learning_rate": 2.5e-7},
        ),
    }


VARIANTS = {name: variant for form, label in _FORMS.items() for name, variant in _variants(form, label).items()}

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
