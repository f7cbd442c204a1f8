"""How many actions a turn: with ten actions in all, and with five turns.

Run it: ``python benchmarks/actions_per_turn.py``; ``--help`` lists the options.
"""

import sys
from collections.abc import Mapping

from learning.demonstrations import FIVE_TURNS, FIXED_TOTAL
from learning.runner import ask
from learning.spec import Evaluation, Question, Task, WarmStart
from learning.tasks import LAKE, VARIANTS

# One warm start for all tasks; an equal part of its demonstrations is of each limit.
_LESSON = WarmStart(
    {"demonstrations": 24_000, "noise": 0.3},
    LAKE,
    {"hidden_size": 64, "num_layers": 3},
    lesson="learning.demonstrations:every_limit",
    play=FIVE_TURNS[5],
)


def _task(limit: Mapping[str, int]) -> Task:
    return Task(
        env="ragen/FrozenLake-v0",
        env_kwargs=LAKE,
        evaluations={"held out": Evaluation("ragen/FrozenLake-v0", LAKE)},
        warm_start=_LESSON,
        trajectories=128 * 16,
        level=0.5,
        variants=("starpo_s",),
        options=limit,
        smoke_demonstrations=260,
        evaluations_per_run=1,
        paper={**limit, "max_completion_length": 8192},
    )


QUESTION = Question(
    name="actions_per_turn",
    title="How many actions a turn: with ten actions in all, and with five turns?",
    tasks={
        **{f"10 in all, {each} a turn": _task(limit) for each, limit in FIXED_TOTAL.items()},
        # Two actions a turn are ten in five turns: that task is there already.
        **{f"5 turns, {each} a turn": _task(limit) for each, limit in FIVE_TURNS.items() if limit != FIXED_TOTAL[each]},
    },
    variants={"starpo_s": VARIANTS["starpo_s"]},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
