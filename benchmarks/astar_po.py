"""A*-PO against PPO and GRPO: success, trajectories, time, memory, distance from the reference.

Run it: ``python benchmarks/astar_po.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question
from learning.tasks import TASKS, VARIANTS

_NAMES = ("starpo", "starpo_gae", "astar_po")

QUESTION = Question(
    name="astar_po",
    title="A*-PO against PPO and GRPO: what does a value of the start state save?",
    tasks={
        **{name: replace(TASKS[name], variants=_NAMES) for name in ("bandit", "frozenlake", "sokoban")},
        "toyshop": replace(TASKS["toyshop"], variants=("starpo", "astar_po")),
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
