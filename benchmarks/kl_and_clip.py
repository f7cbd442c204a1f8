"""What do the KL term and the symmetric clip cost, and what does dropping them risk?

Run it: ``python benchmarks/kl_and_clip.py``; ``--help`` lists the options.
"""

import sys
from dataclasses import replace

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import TASKS

# Two passes over a rollout in two mini-batches each: a clip has something to do only where the policy has moved away
# from the one that played.
_PASSES = {"per_device_train_batch_size": 64, "steps_per_generation": 2, "num_iterations": 2, "delta": None}
_PAPER = {"num_iterations": 2, "delta": None}
_SYMMETRIC, _HIGHER = {"epsilon": 0.2, "epsilon_high": 0.2}, {"epsilon": 0.2, "epsilon_high": 0.28}
_SMOKE = {"per_device_train_batch_size": 8}


def _variant(label: str, **options: float) -> Variant:
    return Variant(label, options={**_PASSES, **options}, smoke=_SMOKE, paper={**_PAPER, **options})


VARIANTS = {
    "base": _variant("KL 0.001, clip 0.2", beta=0.001, **_SYMMETRIC),
    "no_kl": _variant("no KL, clip 0.2", beta=0.0, **_SYMMETRIC),
    "clip_higher": _variant("KL 0.001, clip 0.2/0.28", beta=0.001, **_HIGHER),
    "both": _variant("no KL, clip 0.2/0.28", beta=0.0, **_HIGHER),
}

QUESTION = Question(
    name="kl_and_clip",
    title="What do the KL term and the symmetric clip cost?",
    tasks={
        "frozenlake": replace(
            TASKS["frozenlake"], variants=tuple(VARIANTS), trajectories=128 * 24, evaluations_per_run=4
        )
    },
    variants=VARIANTS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
