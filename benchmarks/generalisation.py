"""Trained on one game, better at another? Sokoban to other rooms, symbols and FrozenLake; one bandit to others.

Run it: ``python benchmarks/generalisation.py``; ``--help`` lists the options. The embedded model could not read a game
that it has never seen, so a tenth of its demonstrations is of each of the other games.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Evaluation, Question, WarmStart
from learning.tasks import LAKE, ROOM, TASKS, VARIANTS

from ragen_envs.sokoban import NEW_VOCABULARY

_SOKOBAN = TASKS["sokoban"]
_NAMES = ("starpo_s", "starpo_s_gae")
_OTHER_LAKE = {"frozenlake": {}, "frozenlake_slippery": LAKE}

QUESTION = Question(
    name="generalisation",
    title="Trained on one game, better at another?",
    tasks={
        "sokoban": replace(
            _SOKOBAN,
            warm_start=WarmStart(
                {"demonstrations": 12_000, "noise": 0.3},
                {},
                _SOKOBAN.warm_start.model,
                lesson="learning.demonstrations:several_games",
            ),
            evaluations={
                "held out": Evaluation("ragen/Sokoban-v0", ROOM),
                "other symbols": Evaluation("ragen/Sokoban-v0", {**ROOM, "symbols": NEW_VOCABULARY}),
                "6 × 6": Evaluation("ragen/Sokoban-v0"),
                "SokobanLarge": Evaluation("ragen/SokobanLarge-v0"),
                "FrozenLake": Evaluation("ragen/FrozenLake-v0", LAKE),
            },
            evaluations_per_run=4,
            variants=_NAMES,
        ),
        "bandit": replace(TASKS["bandit"], variants=_NAMES),
        # From one lake to the other; RAGEN's Table 4 has no such column.
        **{
            name: replace(
                TASKS[name],
                evaluations={**TASKS[name].evaluations, "the other lake": Evaluation("ragen/FrozenLake-v0", other)},
                evaluations_per_run=4,
                variants=_NAMES,
            )
            for name, other in _OTHER_LAKE.items()
        },
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
