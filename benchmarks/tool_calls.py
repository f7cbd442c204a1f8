"""Does a model learn to carry out tasks by calling tools, and does it know how to use tools that it has never seen?

Run it: ``python benchmarks/tool_calls.py``; ``--help`` lists the options.
"""

import sys

from learning.runner import ask
from learning.spec import Evaluation, Question, Task, WarmStart
from learning.tasks import VARIANTS

from ragen_envs import TURN_LIMITS
from ragen_trl.config.recipes import ENVIRONMENTS, warm_start_defaults

TOOLS = "ragen/Tools-v0"
TWO_CALLS = dict(ENVIRONMENTS[TOOLS]["env_kwargs"])
_NAMES = ("starpo", "starpo_s")

QUESTION = Question(
    name="tool_calls",
    title="Does a model learn to carry out tasks by calling tools?",
    tasks={
        "two_calls": Task(
            env=TOOLS,
            env_kwargs=TWO_CALLS,
            evaluations={
                "held out": Evaluation(TOOLS, TWO_CALLS),
                "three calls": Evaluation(TOOLS, {"calls": 3}),
                "unseen tools": Evaluation(TOOLS, {**TWO_CALLS, "split": "unseen_tools"}),
            },
            warm_start=WarmStart(warm_start_defaults(TOOLS, None), TWO_CALLS, {"hidden_size": 96, "num_layers": 3}),
            trajectories=128 * 60,
            level=0.7,
            variants=_NAMES,
            smoke_demonstrations=512,
            paper=TURN_LIMITS[TOOLS],
        )
    },
    variants={name: VARIANTS[name] for name in _NAMES},
    curves=True,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
