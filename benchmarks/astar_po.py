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
    published=(
        "A*-PO (arXiv 2505.20686), on MATH, one turn, Qwen2.5 of 1.5, 3 and 7 B: hours of training 6.9, 8.8, 11.0 "
        "against 15.0, 18.3, 20.2 of GRPO and 10.8, 13.6, 20.5 of PPO at like accuracy; KL 0.07, 0.08, 0.08 against "
        "0.09, 0.10, 0.17 and 0.15, 0.11, 0.13; peak memory that of GRPO, and less than PPO's (77 against 93 % at 7 B)."
    ),
    reading=(
        "The accuracy agrees but for Sokoban, where A*-PO learns less than half as much. KL is smaller than that "
        "of both but against GRPO on FrozenLake (1.9 and 1.7 nats). Memory is the same, as in the paper's table "
        "against GRPO. Time depends on how often the reference is played: at equal success A*-PO needs 0.83 of "
        "StarPO's CPU seconds on FrozenLake, 0.93 on the bandit, 1.12 in the shop (`learning_curves.py` has the "
        "comparison)."
    ),
    tasks={
        **{name: replace(TASKS[name], variants=_NAMES) for name in ("bandit", "frozenlake", "sokoban")},
        "toyshop": replace(TASKS["toyshop"], variants=("starpo", "astar_po")),
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
