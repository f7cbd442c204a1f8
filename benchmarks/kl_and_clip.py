"""What do the KL term and the symmetric clip cost, and what does dropping them risk?

Run it: ``python benchmarks/kl_and_clip.py``; ``--help`` lists the options.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Task, Variant
from learning.tasks import GAE, HIGHER, IN_FOUR_UPDATES, PPO_IN_FOUR, SYMMETRIC, TASKS, in_four_updates, to_the_end

# Two passes over a rollout in two mini-batches each: a clip has something to do only where the policy has moved away
# from the one that played.
_PASSES = {"per_device_train_batch_size": 64, "steps_per_generation": 2, "num_iterations": 2, "delta": None}
_PAPER = {"num_iterations": 2, "delta": None}
_SMOKE = {"per_device_train_batch_size": 8}


def _variant(label: str, form: Mapping[str, Any], **options: float) -> Variant:
    paper = {**_PAPER, **options, **({"advantage": "gae"} if form else {})}
    return Variant(label, options={**_PASSES, **form, **options}, smoke=_SMOKE, paper=paper)


def _variants(prefix: str, label: str, form: Mapping[str, Any]) -> dict[str, Variant]:
    return {
        f"{prefix}base": _variant(f"{label}KL 0.001, clip 0.2", form, beta=0.001, **SYMMETRIC),
        f"{prefix}no_kl": _variant(f"{label}no KL, clip 0.2", form, beta=0.0, **SYMMETRIC),
        f"{prefix}clip_higher": _variant(f"{label}KL 0.001, clip 0.2/0.28", form, beta=0.001, **HIGHER),
        f"{prefix}both": _variant(f"{label}no KL, clip 0.2/0.28", form, beta=0.0, **HIGHER),
    }


_PAPERS = ("gae_base", "gae_no_kl", "gae_clip_higher")
_RAGEN = {
    "ppo_four": PPO_IN_FOUR,
    "ppo_four_no_kl": in_four_updates("PPO form, 4 updates, no KL", beta=0.0, **GAE, **SYMMETRIC),
    "ppo_four_clip_higher": in_four_updates("PPO form, 4 updates, clip 0.2/0.28", **GAE, **HIGHER),
}
_GROUP_FORM, _PPO_FORM = _variants("", "", {}), _variants("gae_", "GAE, ", GAE)


def _task(name: str, rollouts: int, variants: Iterable[str], trajectories: int) -> Task:
    halves = {"per_device_train_batch_size": trajectories // 2}
    # Not divided by the std of a group where that is known to teach the wrong thing (tasks.py).
    group = {**halves, "scale_rewards": "none"}
    return replace(
        TASKS[name],
        variants=tuple(variants),
        trajectories=trajectories * rollouts,
        evaluations_per_run=4,
        changes={each: group if each in _GROUP_FORM else halves for each in variants if name != "frozenlake"},
    )


QUESTION = Question(
    name="kl_and_clip",
    title="What do the KL term and the symmetric clip cost?",
    tasks={
        "frozenlake": _task("frozenlake", 24, (*_GROUP_FORM, *_PAPERS), trajectories=128),
        # The paper's game and form: to the end of its curves, in RAGEN's four updates a rollout, and for 16 rollouts.
        "sokoban_200": to_the_end("sokoban", tuple(_RAGEN), dict.fromkeys(_RAGEN, IN_FOUR_UPDATES)),
        "sokoban": _task("sokoban", 16, _PAPERS, trajectories=64),
        "frozenlake_slippery": _task("frozenlake_slippery", 16, _PAPERS, trajectories=64),
        "bandit": _task("bandit", 60, (*_GROUP_FORM, *_PPO_FORM), trajectories=32),
    },
    variants={**_GROUP_FORM, **_PPO_FORM, **_RAGEN},
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
