"""With and without reasoning: do a few tokens before the answer help, and what does training make of them?

Run it: ``python benchmarks/reasoning.py``; ``--help`` lists the options. The embedded model has no language; its
thought is a note of where it stands and where it wants to go (``learning/scratchpad.py``).
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.scratchpad import LONGEST_REPLY
from learning.spec import Question, Task
from learning.tasks import TASKS, VARIANTS

_LAKE = TASKS["frozenlake"]
_NAMES = ("starpo",)


def _noted(lesson: str) -> Task:
    return replace(
        _LAKE,
        warm_start=replace(_LAKE.warm_start, lesson=f"learning.scratchpad:{lesson}"),
        options={"think": True, "max_reply_length": LONGEST_REPLY},
        variants=_NAMES,
    )


QUESTION = Question(
    name="reasoning",
    title="With and without reasoning: do a few tokens before the answer help?",
    tasks={
        "without": replace(_LAKE, variants=_NAMES, paper={"think": False}),
        "with notes": _noted("places"),
        "with notes of three lengths": _noted("free"),
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
