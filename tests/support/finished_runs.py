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


def question(**variants: Any) -> Any:
    """The JSON of a question with one game, `game`, and these variants' runs."""
    rates = {"random": {"success": 0.2}, "oracle": {"success": 1.0}, "warm_start": {"success": 0.3}}
    settings = {"env": "E", "episodes": 256, "evaluations": {"held out": {}}}
    labelled = {name: {"label": name.upper(), "runs": runs} for name, runs in variants.items()}
    task = {"prepared": {"settings": settings, "results": {"held out": rates}}, "variants": labelled}
    return {"question": {"name": "q"}, "tasks": {"game": {**task, "trajectories": 100}}}


def ending(*rates: float) -> list[Any]:
    """Runs that begin at 0.3 and end at these rates, by seed."""
    return [
        {**run([0.3, rate], [0, 100], seed=seed, peak_mib=100.0), "final": finals(rate)}
        for seed, rate in enumerate(rates)
    ]


def finals(rate: float, **figures: Any) -> dict[str, Any]:
    """What such a run ends with."""
    return {"cpu_seconds": 8.0, "peak_mib": 100.0, "evaluations": {"held out": {"success": rate, **figures}}}


def falling(success: list[float], spread: list[float], **others: Any) -> Any:
    """A run with an evaluation every ten steps, and the std within groups between them."""
    steps = [10 * place for place in range(len(success))]
    rows = [
        {**row, "step": step, "in_group_std": std}
        for row, step, std in zip(run(success, steps)["curve"], steps, spread, strict=True)
    ]
    return {**run(success, steps), "curve": rows, **others}
