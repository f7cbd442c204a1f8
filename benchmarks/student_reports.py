"""Two reports on A*-PO for a shop that reached 0 % and 10 %, and the same with the loss that the paper has.

Run it: ``python benchmarks/student_reports.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question
from learning.tasks import TASKS, VARIANTS

_NAMES = ("first_report", "second_report", "astar_po", "starpo")

QUESTION = Question(
    name="student_reports",
    title="What went wrong in two reports on A*-PO, and does the paper's loss cure it?",
    tasks={"toyshop": replace(TASKS["toyshop"], variants=_NAMES)},
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
