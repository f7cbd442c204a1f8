"""Results as text: the rows of the tables, and the sentence at the top of the report.

The verdict depends only on intervals: of the difference, paired by start state, or of both rates of a run that kept no
episodes. If it contains 0, or they overlap, the sentence says that no difference was shown, not that there is none.
"""

from collections.abc import Sequence
from typing import Any

from ragen_trl.evaluation.intervals import lies_above, signed_with_interval, with_interval
from ragen_trl.reporting.run_folder import POLICIES, Run, played, policy_label

COLUMNS = ("policy", "success [95 %]", "return", "format ok", "turns", "n")
POOLED_COLUMNS = ("policy", "success", "return", "format ok", "turns", "n")


def result_rows(summary: dict[str, Any]) -> list[list[str]]:
    """The cells of one run's table, one row per policy."""
    rows = []
    for policy in POLICIES:
        result = summary["results"][policy]
        if "not_played" in result:
            rows.append([policy_label(summary, policy), result["not_played"], *[""] * (len(COLUMNS) - 2)])
            continue
        numbers = [f"{result['mean_return']:.2f}", f"{result['format_valid']:.2f}", f"{result['turns']:.1f}"]
        rows.append([policy_label(summary, policy), with_interval(result, 2), *numbers, str(result["n"])])
    return rows


def pooled_rows(runs: Sequence[Run]) -> list[list[str]]:
    """The cells of a table over repetitions: the mean over runs with the lowest and the highest value."""
    rows = []
    for policy in POLICIES:
        results = [run.summary["results"][policy] for run in runs if policy in played(run.summary)]
        if not results:
            reason = runs[0].summary["results"][policy]["not_played"]
            rows.append([policy_label(runs[0].summary, policy), reason, *[""] * (len(POOLED_COLUMNS) - 2)])
            continue
        counts = [result["n"] for result in results]
        n = f"{len(counts)} × {counts[0]}" if len(set(counts)) == 1 else " + ".join(map(str, counts))
        fields = (("success", 2), ("mean_return", 2), ("format_valid", 2), ("turns", 1))
        cells = [_with_range([result[field] for result in results], digits) for field, digits in fields]
        rows.append([policy_label(runs[0].summary, policy), *cells, n])
    return rows


def sentence(run: Run, label: str) -> str:
    """One run in a sentence, with the verdict that its intervals allow."""
    results = played(run.summary)
    before, trained = results["before"], results["trained"]
    start = "after the warm start" if run.summary.get("warm_started") is True else "before"
    rates = [f"{name} {results[name]['success']:.2f}" for name in ("random", "oracle") if name in results]
    text = (
        f"{label + ': s' if label else 'S'}uccess on {_states(run)}: {with_interval(before, 2)} {start}, "
        f"{with_interval(trained, 2)} after training{_listed(rates)}. "
    )
    sign = _sign(results, "before")
    if "before" in trained.get("differences", {}):
        difference = signed_with_interval(trained["differences"]["before"], 2)
        said = {1: "Success rose", -1: "Success fell", 0: "No improvement shown"}[sign]
        text += f"{said}: the difference is {difference}, paired by start state."
    elif sign > 0:
        text += "The interval after training lies above the one before."
    elif sign < 0:
        text += "Success fell: the interval after training lies below the one before."
    else:
        text += "The intervals overlap: no improvement shown."
    if "random" in results and _sign(results, "random") <= 0:
        text += " The trained policy is not shown to be better than the random one."
    return text


def pooled_sentence(runs: Sequence[Run], label: str = "") -> str:
    """Repetitions in a sentence: the range over seeds, and in how many of them training helped."""
    results = [played(run.summary) for run in runs]
    policies = [policy for policy in POLICIES if all(policy in result for result in results)]
    ranges = {policy: _with_range([result[policy]["success"] for result in results], 2) for policy in policies}
    start = "after the warm start" if runs[0].summary.get("warm_started") is True else "before"
    signs = [_sign(result, "before") for result in results]
    better, worse = signs.count(1), signs.count(-1)
    rates = [f"{name} {ranges[name]}" for name in ("random", "oracle") if name in ranges]
    text = (
        f"{label + ': s' if label else 'S'}uccess over {seeds_in_words(runs)}, {_states(runs[0])} each: "
        f"{ranges['before']} {start}, {ranges['trained']} after training, mean and range over runs{_listed(rates)}. "
        f"Training is shown to raise success in {better} of {len(runs)} runs"
    )
    text += f" and to lower it in {worse}." if worse else "."
    if "random" not in ranges:
        return text
    beats_random = sum(_sign(result, "random") > 0 for result in results)
    if beats_random < len(runs):
        text += f" The trained policy is shown to be better than the random one in {beats_random} of {len(runs)}."
    return text


def _sign(results: dict[str, dict[str, Any]], other: str) -> int:
    """1 if the trained policy is shown to succeed more often than another, -1 if less often, else 0."""
    trained, compared = results["trained"], results[other]
    difference = trained.get("differences", {}).get(other)
    if difference is None:
        return int(lies_above(trained, compared)) - int(lies_above(compared, trained))
    return int(difference["low"] > 0) - int(difference["high"] < 0)


def _listed(rates: Sequence[str]) -> str:
    return f"; {', '.join(rates)}" if rates else ""


def _states(run: Run) -> str:
    counts = {result["n"] for result in played(run.summary).values()}
    return f"{counts.pop()} held-out start states" if len(counts) == 1 else "held-out start states (n: see the table)"


def seeds_in_words(runs: Sequence[Run]) -> str:
    """The number of runs, and how many of them are independent: those with different seeds."""
    seeds = [run.summary["seed"] for run in runs]
    different = sorted(set(seeds))
    if len(different) == len(seeds):
        return f"{len(seeds)} seeds ({', '.join(map(str, different))})"
    return f"{len(seeds)} runs of only {len(different)} different seed{'s' * (len(different) > 1)}"


def _with_range(values: list[float], digits: int) -> str:
    """Mean and range; no range if all values print the same."""
    low, mean, high = (f"{value:.{digits}f}" for value in (min(values), sum(values) / len(values), max(values)))
    return mean if low == high else f"{mean} ({low}–{high})"
