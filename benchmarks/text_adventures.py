"""Does a small model learn to follow a task in games that it has never played? The smallest text adventures.

Run it: ``python benchmarks/text_adventures.py``; ``--help`` lists the options. It needs ``ragen-trl[textworld]``. Games
are made when they are first played, some seconds each: 32 or 128 to train on, and 16 others to evaluate on.
"""

import sys
from importlib.util import find_spec

from learning.runner import ask
from learning.spec import Evaluation, Question, Task, WarmStart
from learning.tasks import VARIANTS

from ragen_trl.config.recipes import ENVIRONMENTS, warm_start_defaults

ENV = "ragen/TextWorld-v0"
# Half of its actions are random: the model learns what a command looks like and half of what leads on.
_LESSON = warm_start_defaults(ENV, None)


def _task(games: int, demonstrations: int) -> Task:
    trained = {**ENVIRONMENTS[ENV]["env_kwargs"], "games": games}
    others = {**trained, "games": 16, "split": "eval"}
    return Task(
        env=ENV,
        env_kwargs=trained,
        evaluations={"trained games": Evaluation(ENV, trained), "other games": Evaluation(ENV, others)},
        warm_start=WarmStart(
            {**_LESSON, "demonstrations": demonstrations}, trained, {"hidden_size": 96, "num_layers": 3}
        ),
        trajectories=128 * 40,
        level=0.8,
        variants=("starpo_s",),
        options={"max_reply_length": 32, "max_completion_length": 1200},
    )


QUESTION = Question(
    name="text_adventures",
    title="Does a small model learn to follow a task in games that it has never played?",
    tasks={"32 games": _task(32, 2000), "128 games": _task(128, 4000)},
    variants={"starpo_s": VARIANTS["starpo_s"]},
    curves=True,
)

if __name__ == "__main__":
    if find_spec("textworld") is None:
        print("left out: the package textworld is not installed; pip install 'ragen-trl[textworld]'")
        sys.exit(0)
    sys.exit(ask(QUESTION))
