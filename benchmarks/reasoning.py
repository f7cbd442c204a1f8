"""With and without reasoning: do a few tokens before the answer help, and what does training make of them?

Run it: ``python benchmarks/reasoning.py``; ``--help`` lists the options. The embedded model has no language; its
thought is a note of where it stands and where it wants to go, or of the names it reads (``learning/scratchpad.py``).
"""

import sys
from dataclasses import replace

from findings.claims import GAMES
from learning.runner import ask
from learning.scratchpad import LONGEST_REPLY
from learning.spec import Question, Task
from learning.tasks import TASKS, VARIANTS

_FORMS = ("starpo", "starpo_gae")


def _without(game: str) -> Task:
    return replace(TASKS[game], variants=_FORMS, paper={**TASKS[game].paper, "think": False})


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
        **{
            f"{game}, {name}": task
            for game in GAMES
            for name, task in {"without": _without(game), "with notes": noted(game, "places", _FORMS)}.items()
        },
        "frozenlake, with notes of three lengths": noted("frozenlake", "free", _FORMS[:1]),
    },
    variants={name: VARIANTS[name] for name in _FORMS},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
