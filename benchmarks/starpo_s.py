"""Does StarPO-S keep what StarPO loses? The filter, no KL term and clip-higher together, in both forms.

Run it: ``python benchmarks/starpo_s.py``; ``--help`` lists the options. A headline claim depends on it:
five seeds of all but *vanilla*.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question
from learning.tasks import TASKS, VARIANTS

_NAMES = ("starpo", "starpo_gae", "starpo_s", "starpo_s_gae")
_MORE = dict.fromkeys(_NAMES, (3, 4))

QUESTION = Question(
    name="starpo_s",
    title="Does StarPO-S keep what StarPO loses?",
    tasks={
        **{
            name: replace(TASKS[name], variants=("vanilla", *_NAMES), more_seeds=_MORE)
            for name in ("bandit", "frozenlake", "sokoban")
        },
        # RAGEN's own schedule is in collapse.py, on this lake as well.
        "frozenlake_slippery": replace(TASKS["frozenlake_slippery"], variants=_NAMES, more_seeds=_MORE),
    },
    variants={name: VARIANTS[name] for name in ("vanilla", *_NAMES)},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
