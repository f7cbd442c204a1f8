"""Which variant learns, how fast, and which one keeps what it learnt? Side by side, from one warm start a task.

About an hour on two cores: ``python benchmarks/learning_curves.py``; ``--help`` lists the options.
"""

import sys

from learning.runner import ask
from learning.spec import Question
from learning.tasks import TASKS, VARIANTS

QUESTION = Question(
    name="learning_curves",
    title="Which variant learns, how fast, and which one keeps what it learnt?",
    tasks={name: TASKS[name] for name in ("bandit", "frozenlake", "sokoban", "toyshop")},
    variants=VARIANTS,
    curves=True,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
