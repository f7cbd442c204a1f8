"""At 128 trajectories a rollout: many responses to few start states, or few to many?

Run it: ``python benchmarks/responses_per_prompt.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, TASKS

_SIZES = (32, 16, 8, 4, 2, 1)
# In the PPO form: a critic is the only baseline that a single response can have.
VARIANTS = {
    f"gae_{size}": Variant(
        f"{128 // size} prompts × {size}",
        options={"advantage": "gae", **CRITIC, "num_generations": size},
        smoke={"num_generations": min(size, 16)},
    )
    for size in _SIZES
}

QUESTION = Question(
    name="responses_per_prompt",
    title="At 128 trajectories a rollout: many responses to few start states, or few to many?",
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=128 * 22, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
