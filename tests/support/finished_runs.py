"""Made-up results of runs, in the form that the experiments write."""

from itertools import count
from typing import Any

_NUMBERS = count()


def run(success: list[float], trajectories: list[int], reference: int = 0, seed: int = 0, **final: float) -> Any:
    """A finished run; a second of both clocks and a nat per evaluation. Its digest is that of no other run."""
    rows = [
        {
            "step": number,
            "trajectories": sampled,
            "reference_trajectories": reference if number else 0,
            "seconds": float(number),
            "cpu_seconds": float(number),
            "kl": float(number),
            "success": rate,
        }
        for number, (rate, sampled) in enumerate(zip(success, trajectories, strict=True))
    ]
    figures = {"seconds": 9.0, "cpu_seconds": 8.0, "peak_mib": 600.0, "loss_min": 0.25, **final}
    return {
        **{"seed": seed, "settings": {"seed": seed}, "digest": f"run {next(_NUMBERS)}", "commit": "abc"},
        **{"machine": {"cpus": 2}, "curve": rows, "final": figures},
    }
