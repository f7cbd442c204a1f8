"""At 128 trajectories a rollout: many responses to few start states, or few to many?

Run it: ``python benchmarks/responses_per_prompt.py``; ``--help`` lists the options.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Task, Variant
from learning.tasks import GAE, TASKS

_SIZES = (32, 16, 8, 4, 2, 1)
_FEW = ("gae_16", "gae_4", "gae_1", "group_16", "group_4")
# A critic is the only baseline that a single response can have.
_PPO_FORM = {
    f"gae_{size}": Variant(
        f"{128 // size} prompts × {size}",
        options={**GAE, "num_generations": size},
        smoke={"num_generations": min(size, 16)},
    )
    for size in _SIZES
}
_GROUP_FORM = {
    f"group_{size}": Variant(
        f"group form, {128 // size} prompts × {size}",
        options={"num_generations": size},
        smoke={"num_generations": min(size, 16)},
    )
    for size in (16, 4)
}


def _task(name: str, rollouts: int, variants: Iterable[str]) -> Task:
    task = TASKS[name]
    return replace(
        task,
        variants=tuple(variants),
        trajectories=128 * rollouts,
        evaluations_per_run=4,
        options={**task.options, "per_device_train_batch_size": 128} if name == "bandit" else task.options,
        # Divided by the std of a group, a bandit's expected step is away from the better arm (docs/decisions.md).
        changes=dict.fromkeys(_GROUP_FORM, {"scale_rewards": "none"}) if name == "bandit" else {},
    )


QUESTION = Question(
    name="responses_per_prompt",
    title="At 128 trajectories a rollout: many responses to few start states, or few to many?",
    tasks={
        "frozenlake": _task("frozenlake", 22, (*_PPO_FORM, "group_16", "group_4")),
        "sokoban": _task("sokoban", 8, _PPO_FORM),
        "frozenlake_slippery": _task("frozenlake_slippery", 8, _FEW[:3]),
        "bandit": _task("bandit", 12, _FEW),
    },
    variants={**_PPO_FORM, **_GROUP_FORM},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
