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
    published=(
        "The reports: success 0 % and 10 % in a small shop, with losses that go below 0, where A*-PO's squared error "
        "cannot; `ragen_trl/student_reports.py` and `docs/algorithms.md` say what they trained instead."
    ),
    reading=(
        "The diagnosis agrees: the second report's loss falls to -54, where a squared error cannot go, and it "
        "holds in two seeds and ends at 0 in one; the first one, with one trajectory an update, unlearns in "
        "100 updates what the warm start knew. With the paper's loss on the same tasks success is 0.87 to 0.90 in "
        "all seeds, as StarPO's is (0.88 to 0.92). The reports' 0 and 10 % were on their own shop and model; here "
        "only what they optimised is repeated."
    ),
    tasks={"toyshop": replace(TASKS["toyshop"], variants=_NAMES)},
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
