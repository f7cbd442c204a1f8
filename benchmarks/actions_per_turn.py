"""How many actions a turn: with ten actions in all, and with five turns.

Run it: ``python benchmarks/actions_per_turn.py``; ``--help`` lists the options. A bandit has one action, so that it is
not asked there.
"""

import sys
from collections.abc import Mapping
from typing import Any

from learning.demonstrations import FIVE_TURNS, FIXED_TOTAL
from learning.runner import ask
from learning.spec import Evaluation, Question, Task, WarmStart
from learning.tasks import LAKE, ROOM, VARIANTS

_NAMES = ("starpo_s", "starpo_s_gae")
_LIMITS = {
    **{f"10 in all, {each} a turn": limit for each, limit in FIXED_TOTAL.items()},
    # Two actions a turn are ten in five turns: that task is there already.
    **{f"5 turns, {each} a turn": limit for each, limit in FIVE_TURNS.items() if limit != FIXED_TOTAL[each]},
}
# Asked in every game and both forms, which shows whether actions a turn or actions in all matter.
_FEW = [name for name, limit in _LIMITS.items() if limit["max_actions_per_turn"] in (1, 6)]


def _task(
    name: str, env: str, env_kwargs: Mapping[str, Any], demonstrations: int, **options: Any
) -> Task:
    limit = _LIMITS[name]
    # One warm start for all tasks of a game; an equal part of its demonstrations is of each limit.
    lesson = WarmStart(
        {"demonstrations": demonstrations, "noise": 0.3},
        env_kwargs,
        {"hidden_size": 64, "num_layers": 3},
        lesson="learning.demonstrations:every_limit",
        play={**FIVE_TURNS[5], **options},
    )
    return Task(
        env=env,
        env_kwargs=env_kwargs,
        evaluations={"held out": Evaluation(env, env_kwargs)},
        warm_start=lesson,
        trajectories=128 * 16,
        level=0.5,
        variants=_NAMES if name in _FEW else _NAMES[:1],
        options={**limit, **options},
        smoke_demonstrations=260,
        evaluations_per_run=1,
        paper={**limit, "max_completion_length": 8192},
    )


QUESTION = Question(
    name="actions_per_turn",
    title="How many actions a turn: with ten actions in all, and with five turns?",
    tasks={
        **{f"frozenlake, {name}": _task(name, "ragen/FrozenLake-v0", LAKE, 24_000) for name in _LIMITS},
        # 35 actions in 5 turns, and 10 turns of one, are longer than the recipe's 700 tokens.
        **{
            f"sokoban, {name}": _task(name, "ragen/Sokoban-v0", ROOM, 12_000, max_completion_length=1400)
            for name in _FEW
        },
        **{
            f"frozenlake_slippery, {name}": _task(name, "ragen/FrozenLake-v0", {}, 8000, max_completion_length=1400)
            for name in _FEW
        },
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
