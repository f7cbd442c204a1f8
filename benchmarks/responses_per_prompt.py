"""At 128 trajectories a rollout: many responses to few start states, or few to many?

Run it: ``python benchmarks/responses_per_prompt.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, TASKS

_SIZES = (32, 16, 8, 4, 2, 1)
# In the PPO form: a critic is the only baseline that one response alone can have.
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
    published=(
        "RAGEN, Table 2 (success in %, 32, 16, 8, 4, 2, 1 responses a prompt): Sokoban 21.1, 20.3, 20.3, 20.7, 19.9, "
        "19.5; other symbols 20.2, 21.5, 19.5, 25.4, 25.0, 22.3; FrozenLake 18.0, 19.5, 17.2, 21.5, 12.5, 12.5. With "
        "n = 256 one standard error is 2.5 points, and the random policy is at 19.1 and 21.2."
    ),
    reading=(
        "It agrees in what cannot be told apart: after 22 rollouts all six end between 0.43 and 0.47, and ranges "
        "over seeds overlap for nearly all pairs. 32 responses and 2 are lowest (0.43), those in between and 1 "
        "reach 0.47; with n = 256 and three seeds a standard error is about 0.02. The table in the paper has "
        "differences of that size, too, from one run each."
    ),
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=128 * 22, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
