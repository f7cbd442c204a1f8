"""At 128 trajectories a rollout: many responses to few start states, or few to many?

Run it: ``python benchmarks/responses_per_prompt.py``; ``--help`` lists the options.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import CRITIC, TASKS

_SIZES = (32, 16, 8, 4, 2, 1)


def _variants(label: str, sizes: Sequence[int], **options: Any) -> dict[str, Variant]:
    return {
        f"{label.lower()}_{size}": Variant(
            f"{label}, {128 // size} × {size}",
            options={**options, "num_generations": size},
            smoke={"num_generations": min(size, 16)},
        )
        for size in sizes
    }


# A critic is the only baseline that one response alone can have.
_GROUP, _GAE = _variants("group", _SIZES[:-1]), _variants("GAE", _SIZES, advantage="gae", **CRITIC)

QUESTION = Question(
    name="responses_per_prompt",
    title="At 128 trajectories a rollout: many responses to few start states, or few to many?",
    published=(
        "RAGEN, Table 2 (success in %, 32, 16, 8, 4, 2, 1 responses a prompt): Sokoban 21.1, 20.3, 20.3, 20.7, 19.9, "
        "19.5; other symbols 20.2, 21.5, 19.5, 25.4, 25.0, 22.3; FrozenLake 18.0, 19.5, 17.2, 21.5, 12.5, 12.5. With "
        "n = 256 one standard error is 2.5 points, and the random policy is at 19.1 and 21.2."
    ),
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=(*_GROUP, *_GAE), trajectories=128 * 22, evaluations_per_run=4
        )
    },
    variants={**_GROUP, **_GAE},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
