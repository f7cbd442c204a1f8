"""One step off: what does it cost to train each time on the rollout of the policy before the last update?

Run it: ``python benchmarks/one_step_off.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import STARPO_S, TASKS
from learning.tasks import VARIANTS as KNOWN

_OFF = {"one_step_off_policy": True}
VARIANTS = {
    "starpo": KNOWN["starpo"],
    "starpo_off": Variant("StarPO, group, one step off", options=_OFF),
    "starpo_s": KNOWN["starpo_s"],
    "starpo_s_off": Variant("StarPO-S, group, one step off", STARPO_S, options=_OFF),
}

QUESTION = Question(
    name="one_step_off",
    title="What does it cost to train each time on the rollout of the policy before the last update?",
    tasks={"frozenlake": replace(TASKS["frozenlake"], variants=tuple(VARIANTS))},
    variants=VARIANTS,
    curves=True,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
