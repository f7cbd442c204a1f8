"""How does vanilla StarPO collapse, in its GRPO and its PPO form, and do the warning signs come first?

Run it: ``python benchmarks/collapse.py``; ``--help`` lists the options. The thresholds of the signs
(``ragen_trl/monitoring/alerts.py``) were chosen on other seeds: 0 to 2 of all questions, and 10 of this one.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, STARPO_S, TASKS

_SYMMETRIC = {"epsilon": 0.2, "epsilon_high": 0.2}
# GRPO's form divides by a group's std, the PPO form makes four passes over a rollout.
_PASSES = {"num_iterations": 4, "delta": None, **_SYMMETRIC}
_SMOKE = {"per_device_train_batch_size": 16}

VARIANTS = {
    "grpo": Variant("vanilla, GRPO form", options={"scale_rewards": "group", **_SYMMETRIC}, smoke=_SMOKE),
    "ppo": Variant("vanilla, PPO form, 4 passes", options={"advantage": "gae", **CRITIC, **_PASSES}, smoke=_SMOKE),
    "starpo_s": Variant("StarPO-S, GRPO form", STARPO_S, smoke=_SMOKE),
    "starpo_s_gae": Variant(
        "StarPO-S, PPO form, 1 pass", STARPO_S, options={"advantage": "gae", **CRITIC}, smoke=_SMOKE
    ),
}

QUESTION = Question(
    name="collapse",
    title="How does vanilla StarPO collapse, and do the warning signs come before?",
    tasks={
        # Pairs and a small learning rate: where both of a pair fail, training makes the one that walked less more
        # likely, although that costs success later, and slowly enough to watch.
        "sokoban": replace(
            TASKS["sokoban"],
            variants=("grpo", "starpo_s"),
            trajectories=64 * 110,
            evaluations_per_run=22,
            options={
                **TASKS["sokoban"].options,
                "per_device_train_batch_size": 64,
                "num_generations": 2,
                "learning_rate": 6e-5,
            },
            changes={},
            seeds=(11, 12, 13),
        ),
        "bandit": replace(
            TASKS["bandit"], variants=tuple(VARIANTS), evaluations_per_run=20, changes={}, seeds=(11, 12, 13)
        ),
    },
    variants=VARIANTS,
    curves=True,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
