"""With and without reasoning: do a few tokens before the answer help, and what does training make of them?

Run it: ``python benchmarks/reasoning.py``; ``--help`` lists the options. The embedded model has no language; its
thought is a note of where it stands and where it wants to go, or of the names it reads (``learning/scratchpad.py``).
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.scratchpad import LONGEST_REPLY
from learning.spec import Question, Task
from learning.tasks import TASKS, VARIANTS

_FORMS = ("starpo", "starpo_gae")


def _without(game: str, variants: tuple[str, ...]) -> Task:
    return replace(TASKS[game], variants=variants, paper={**TASKS[game].paper, "think": False})


def noted(game: str, lesson: str, variants: tuple[str, ...]) -> Task:
    """The game with thoughts, which a lesson of ``learning/scratchpad.py`` teaches."""
    task = TASKS[game]
    return replace(
        task,
        warm_start=replace(task.warm_start, lesson=f"learning.scratchpad:{lesson}"),
        options={**task.options, "think": True, "max_reply_length": LONGEST_REPLY},
        variants=variants,
    )


QUESTION = Question(
    name="reasoning",
    title="With and without reasoning: do a few tokens before the answer help?",
    tasks={
        "without": _without("frozenlake", _FORMS),
        "with notes": noted("frozenlake", "places", _FORMS),
        "with notes of three lengths": noted("frozenlake", "free", _FORMS[:1]),
        "bandit, without": _without("bandit", _FORMS),
        "bandit, with notes": noted("bandit", "places", _FORMS),
        "sokoban, without": _without("sokoban", _FORMS),
        "sokoban, with notes": noted("sokoban", "places", _FORMS),
        "frozenlake_slippery, without": _without("frozenlake_slippery", _FORMS),
        "frozenlake_slippery, with notes": noted("frozenlake_slippery", "places", _FORMS),
    },
    variants={name: VARIANTS[name] for name in _FORMS},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
