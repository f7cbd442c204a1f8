"""Does LoRA learn as well as all weights do, and what does it save?

Run it: ``python benchmarks/lora.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import TASKS

_LORA = {"r": 64, "lora_alpha": 64, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
_RATE = 5e-4  # of all weights, in the recipe of the embedded model

VARIANTS = {
    "full": Variant("all weights"),
    "lora_4": Variant(
        "LoRA, r = 64, 4 × the rate", options={"learning_rate": 4 * _RATE}, lora=_LORA, paper={"learning_rate": 4e-6}
    ),
    "lora": Variant(
        "LoRA, r = 64, 10 × the rate", options={"learning_rate": 10 * _RATE}, lora=_LORA, paper={"learning_rate": 1e-5}
    ),
}

QUESTION = Question(
    name="lora",
    title="Does LoRA learn as well as all weights do?",
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=128 * 22, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
