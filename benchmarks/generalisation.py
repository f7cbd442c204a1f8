"""Trained on one game, better at another? Sokoban to other rooms, symbols and FrozenLake; one bandit to others.

Run it: ``python benchmarks/generalisation.py``; ``--help`` lists the options. The embedded model could not read a game
it has never seen: a tenth of its demonstrations is of each of the others, so that training adds to little.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Evaluation, Question, WarmStart
from learning.tasks import LAKE, ROOM, TASKS, VARIANTS

from ragen_envs.sokoban import NEW_VOCABULARY

_SOKOBAN = TASKS["sokoban"]
_NAMES = ("starpo_s",)

QUESTION = Question(
    name="generalisation",
    title="Trained on one game, better at another?",
    published=(
        "RAGEN, Table 4 (trained on Sokoban, success in %): Sokoban 21.5, other symbols 18.8, larger rooms 2.3, "
        "FrozenLake 19.9; Bandit 100, BanditRev 67.6. Random play reaches 19.1, 19.1, 2.7 and 21.2."
    ),
    reading=(
        "In part. From Sokoban training carries over to rooms with other symbols (0.31 to 0.37, as much as on the "
        "rooms that are trained on, 0.28 to 0.38) and to FrozenLake (0.20 to 0.27, which is what random play has "
        "there), and not to rooms of 6 × 6 (0.10 to 0.09, random 0.13) or with two boxes (0.02). The paper's "
        "figures for these are at the level of random play as well. On the bandit the risky arm of one pair is "
        "learnt by name: other pairs become worse (0.46 to 0.23) and BanditRev goes to 0, where the paper's "
        "language model, which knows what names mean, has 67.6 %."
    ),
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
    },
    variants={name: VARIANTS[name] for name in _NAMES},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
