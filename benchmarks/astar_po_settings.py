"""Which settings of A*-PO pay: refresh of V*, adaptive samples, beta1, the budget of stage 1, trajectories a prompt?

Run it: ``python benchmarks/astar_po_settings.py``; ``--help`` lists the options. All sampled trajectories count, those
of the reference included, so that a run that spends more on V* has fewer to train on.
"""

import sys
from dataclasses import replace
from typing import Any

from learning.runner import ask
from learning.spec import Question, Variant
from learning.tasks import TASKS, VARIANTS

_BASE = VARIANTS["astar_po"]  # 4 episodes from each of 128 start states, up to 8 where V* stays uncertain
_STARPO = VARIANTS["starpo"]


def _with(label: str, **options: Any) -> Variant:
    few = {**_BASE.smoke, "reference_samples": 2}
    return replace(_BASE, label=label, options={**_BASE.options, **options}, smoke=few)


def _samples(first: int, most: int) -> dict[str, int]:
    return {"reference_samples": first, "max_reference_samples": most}


_SETTINGS = {
    # Both with a default spelt out, so that they are run at the commit of the others; those of the curves are older.
    "starpo": replace(_STARPO, options={**_STARPO.options, "advantage": "group"}),
    "astar_po": _with(_BASE.label, beta1=0.5),
    "refresh": _with("V* again every 8 updates", refresh_steps=8),
    "refresh_stale": _with("V* again when stale", refresh_when_stale=True),
    "fixed_2": _with("2 samples", **_samples(2, 2)),
    "fixed_5": _with("5 samples", **_samples(5, 5)),
    "fixed_8": _with("8 samples", **_samples(8, 8)),
    "adaptive_2": _with("2 to 16 samples", **_samples(2, 16)),
    "beta1_low": _with("β₁ = 0.05", beta1=0.05),
    "beta1_high": _with("β₁ = 5", beta1=5.0),
    "two": _with("two a prompt", num_generations=2),
}

QUESTION = Question(
    name="astar_po_settings",
    title="Which settings of A*-PO pay?",
    tasks={name: replace(TASKS[name], variants=tuple(_SETTINGS)) for name in ("frozenlake", "toyshop")},
    variants=_SETTINGS,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
