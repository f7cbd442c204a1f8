"""Does credit for single turns pay where episodes are long? GiGPO, MT-GRPO, turn-level and bi-level GAE.

Run it: ``python benchmarks/step_credit.py``; ``--help`` lists the options. Sokoban with one action a turn, ten and
twenty turns, and ToyShop, where only the last turn pays. At equal numbers of sampled trajectories, those of refills
included. The filter is DAPO's dynamic sampling: groups whose returns are all alike are left out, and others are played
in their place.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Task, Variant
from learning.tasks import CRITIC, ROOM, TASKS, VARIANTS

_DYNAMIC = {"max_refills": 2}
_VARIANTS = {
    "starpo": VARIANTS["starpo"],
    "starpo_filter": Variant("StarPO, group, dynamic filter", options=_DYNAMIC),
    "gigpo": VARIANTS["gigpo"],
    "gigpo_filter": Variant("GiGPO, dynamic filter", options={**VARIANTS["gigpo"].options, **_DYNAMIC}),
    "mt_grpo": Variant("MT-GRPO", options={"advantage": "mt_grpo"}),
    "starpo_gae": VARIANTS["starpo_gae"],
    "turn_gae": Variant("turn-level GAE", options={"advantage": "turn_gae", **CRITIC}),
    "bi_level": VARIANTS["bi_level"],
}
_BY_STD = ("starpo", "starpo_filter", "gigpo", "gigpo_filter")
_SEEDS = (0, 1, 2, 3, 4)
_HALF = 64  # trajectories a rollout


def _sokoban(turns: int, rollouts: int, variants: Iterable[str]) -> Task:
    task = TASKS["sokoban"]
    limits = {"max_turns": turns, "max_actions_per_turn": 1, "max_actions": turns, "max_completion_length": 100 * turns}
    return replace(
        task,
        env_kwargs=ROOM,
        warm_start=replace(
            task.warm_start, options={"demonstrations": 6000, "noise": 0.3, "demo_actions_per_turn": 1}
        ),
        trajectories=_HALF * rollouts,
        variants=tuple(variants),
        options={**task.options, **limits, "per_device_train_batch_size": _HALF},
        # Where all fail, returns differ by how far each walked; divided by their std, that teaches to stand still.
        changes=dict.fromkeys(_BY_STD, {"scale_rewards": "none"}),
        evaluations_per_run=2,
        episodes=128,
        seeds=_SEEDS,
    )


QUESTION = Question(
    name="step_credit",
    title="Does credit for single turns pay where episodes are long?",
    tasks={
        "sokoban, 10 turns": _sokoban(10, 12, _VARIANTS),
        "sokoban, 20 turns": _sokoban(20, 8, ("starpo", "gigpo", "starpo_gae", "turn_gae", "bi_level")),
        "toyshop": replace(
            TASKS["toyshop"],
            trajectories=_HALF * 12,
            # Only the last turn pays, so that MT-GRPO is StarPO here.
            variants=tuple(name for name in _VARIANTS if name != "mt_grpo"),
            options={**TASKS["toyshop"].options, "per_device_train_batch_size": _HALF},
            evaluations_per_run=2,
            seeds=_SEEDS,
        ),
    },
    variants=_VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
