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
    published=(
        "RAGEN, Table 4 (success in %, StarPO-S with and without reasoning): Bandit 100 and 81.3, BanditRev 67.6 and "
        "56.3, Sokoban 21.5 and 20.7, other symbols 18.8 and 26.2, larger rooms 2.3 and 2.7, FrozenLake 19.9 and 19.5. "
        "Figure 11: a thought on the bandit shrinks from 66 to 20 tokens."
    ),
    reading=(
        "It does not agree, and cannot say much: the models begin from warm starts of their own (0.32 without "
        "notes, 0.27 with). Training adds 0.23 without notes, 0.16 with notes of one length and 0.27, between "
        "0.13 and 0.36, with notes of three lengths: a few tokens of where things stand are no help that is seen "
        "through the spread of three seeds. Thoughts do not shrink as in the paper's Figure 11: where their "
        "length is free, the shortest ones die out in the first ten rollouts and it goes from 4.5 to 6.5 tokens. "
        "These notes are no reasoning in language, and what language models do is not tested here."
    ),
    tasks={
        "without": replace(_LAKE, variants=_NAMES, paper={"think": False}),
        "with notes": _noted("places"),
        "with notes of three lengths": _noted("free"),
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
