"""Online-k: what does it cost to make k updates with the trajectories of one rollout, at an equal number of both?

Run it: ``python benchmarks/freshness.py``; ``--help`` lists the options.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Task, Variant
from learning.tasks import GAE, TASKS

# One rollout is k times as large, and each k-th of it is one update: the last update learns from trajectories of the
# policy of k - 1 updates ago.
_UPDATES = (1, 2, 5, 10)
_EACH = 64  # trajectories an update


def _variants(prefix: str, label: str, form: Mapping[str, Any]) -> dict[str, Variant]:
    return {
        f"{prefix}online_{updates}": Variant(
            f"{label}online-{updates}",
            options={**form, "per_device_train_batch_size": _EACH, "steps_per_generation": updates},
            smoke={"per_device_train_batch_size": 4, "steps_per_generation": min(updates, 4)},
            paper={"steps_per_generation": 16 * updates, **({"advantage": "gae"} if form else {})},
        )
        for updates in _UPDATES
    }


_GROUP_FORM, _PPO_FORM = _variants("", "", {}), _variants("gae_", "GAE, ", GAE)


def _task(name: str, updates: int, variants: Iterable[str], each: int = _EACH) -> Task:
    # Groups are not divided by their std where it is known to teach the wrong thing (tasks.py).
    own = {} if name == "frozenlake" else {"scale_rewards": "none"}
    smaller = {} if each == _EACH else {"per_device_train_batch_size": each}
    return replace(
        TASKS[name],
        variants=tuple(variants),
        trajectories=each * updates,
        evaluations_per_run=4,
        changes={variant: {**(own if variant in _GROUP_FORM else {}), **smaller} for variant in variants},
    )


QUESTION = Question(
    name="freshness",
    title="What does it cost to make k updates with the trajectories of one rollout?",
    tasks={
        # The paper's games and form; of the other form, or game, what is fresh and what is least so.
        "frozenlake": _task("frozenlake", 80, (*_GROUP_FORM, "gae_online_1", "gae_online_10")),
        "sokoban": _task("sokoban", 20, (*_PPO_FORM, "online_1", "online_10")),
        "frozenlake_slippery": _task("frozenlake_slippery", 20, _PPO_FORM),
        "bandit": _task("bandit", 60, (*_GROUP_FORM, *_PPO_FORM), each=32),
    },
    variants={**_GROUP_FORM, **_PPO_FORM},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
