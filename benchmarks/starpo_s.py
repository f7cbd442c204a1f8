"""Does StarPO-S keep what StarPO loses? The filter, no KL term and clip-higher together, in both forms.

Run it: ``python benchmarks/starpo_s.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question
from learning.tasks import TASKS, VARIANTS

_NAMES = ("vanilla", "starpo", "starpo_gae", "starpo_s", "starpo_s_gae")

QUESTION = Question(
    name="starpo_s",
    title="Does StarPO-S keep what StarPO loses?",
    tasks={name: replace(TASKS[name], variants=_NAMES) for name in ("bandit", "frozenlake", "sokoban")},
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
