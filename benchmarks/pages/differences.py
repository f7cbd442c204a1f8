"""What a run adds to the model that it began with: paired by start state, and over the products that are asked for.

Requests for one product share its title, its options and its place in the results: a model that finds it fulfils most
of them. An interval over start states says how sure a rate is on these requests; one over products, what it would be
with others. Both are in the tables of a shop.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.results import beginnings
from findings.intervals import t_quantile

from pages.markdown import head, row, success
from ragen_trl.evaluation.intervals import paired_difference, rate_interval, ratio_variance, signed_with_interval

Run = Mapping[str, Any]


def found_in(run: Run, kind: str, name: str) -> Mapping[str, Any] | None:
    """Results of an evaluation (``sampled``, ``greedy``) by policy; ``None`` if the run has not played it."""
    found: Mapping[str, Any] | None = run["evaluations"].get(kind, {}).get(name)
    return found


def began(content: Mapping[str, Any], run: Run, name: str, kind: str = "sampled") -> Run | None:
    """The run that made the model which a run began with, if that has played an evaluation.

    A run that needs no other began with the downloaded model. Of one that does, whose warm start is not kept, nothing
    is known.
    """
    if run["stage"].endswith("_greedy"):
        trained = next(iter(beginnings(content, run)), None)
        return None if trained is None else began(content, trained, name, kind)
    starts = beginnings(content, run)
    if "began_with" not in run and run["settings"].get("needs") is None:
        every = content["runs"].values()
        starts = [each for each in every if each["game"] == run["game"] and each["stage"] == "downloaded"]
    return next((each for each in starts if found_in(each, kind, name)), None)


def difference(start: Run, run: Run, name: str, kind: str = "sampled") -> str:
    """Paired by start state; of runs whose episodes are not kept, whether the intervals of both rates overlap."""
    ours, theirs = (_by_seed(each, name, kind) for each in (run, start))
    if (found := paired_difference(ours, theirs)) is not None:
        return signed_with_interval(found, 2)
    after, before = (each["evaluations"][kind][name]["model"] for each in (run, start))
    if after["success_low"] > before["success_high"]:
        return f"above, by {after['success'] - before['success']:.2f}"
    if after["success_high"] < before["success_low"]:
        return f"below, by {before['success'] - after['success']:.2f}"
    return "overlap"


def greedily(content: Mapping[str, Any], trained_name: Callable[[Run], str]) -> list[str]:
    """What training adds where the models before and after it are both played greedily."""
    rows = []
    for run in content["runs"].values():
        if not run["stage"].endswith("_greedy"):
            continue
        name, found = next(iter(run["evaluations"].get("greedy", {"": {}}).items()))
        if (start := began(content, run, name, "greedy")) and (before := found_in(start, "greedy", name)):
            cells = [success(before["model"]), success(found["model"]), difference(start, run, name, "greedy")]
            rows.append(row([trained_name(run), *cells]))
    return [*head(["played greedily", "began at", "at the end", "difference"]), *rows, ""] if rows else []


def over_products(content: Mapping[str, Any], trained_name: Callable[[Run], str]) -> list[str]:
    """The same rates and differences with intervals over products, a table a number of products."""
    tables: dict[str, list[str]] = {}
    for run in content["runs"].values():
        for name, products in content["games"].get(run["game"], {}).get("products", {}).items():
            for kind in ("sampled", "greedy"):
                if not (ours := _totals(run, name, kind, products)):
                    continue
                start = began(content, run, name, kind) if run["seed"] is not None else None
                theirs = _totals(start, name, kind, products) if start else {}
                cells = [rate_over_products(theirs), rate_over_products(ours), difference_over_products(theirs, ours)]
                title = f"over {len(ours)} products"
                tables.setdefault(title, []).append(row([trained_name(run) + ", greedy" * (kind == "greedy"), *cells]))
    lines = []
    for title, rows in tables.items():
        lines += [*head([title, "began at", "at the end", "difference"]), *rows, ""]
    note = (
        "Intervals over products: requests for one product are alike, and another draw of products would move a rate "
        "as far as these say. Differences have Student's t, with one degree of freedom less than there are products."
    )
    return [*lines, note, ""] if lines else []


def rate_over_products(totals: Mapping[int, Sequence[float]]) -> str:
    """A rate with the interval of `rate_interval`, products in place of start states; empty without any."""
    if not totals:
        return ""
    right, played = ([int(each[at]) for each in totals.values()] for at in range(2))
    low, high = rate_interval(right, played)
    return f"{sum(right) / sum(played):.2f} [{low:.2f}, {high:.2f}]"


def difference_over_products(before: Mapping[int, Sequence[float]], after: Mapping[int, Sequence[float]]) -> str:
    """The mean difference of two models on the same requests, with the linearised variance over products."""
    if len(after) < 2 or before.keys() != after.keys():
        return ""
    sizes = [int(played) for _, played in after.values()]
    gained = [right - before[product][0] for product, (right, _) in after.items()]
    value = sum(gained) / sum(sizes)
    arm = t_quantile(len(sizes) - 1) * math.sqrt(ratio_variance(gained, sizes))
    return signed_with_interval({"value": value, "low": value - arm, "high": value + arm}, 2)


def _totals(run: Run, name: str, kind: str, products: Sequence[int]) -> dict[int, list[float]]:
    """Product → successes and episodes."""
    totals: dict[int, list[float]] = {}
    for seed, (outcome,) in _by_seed(run, name, kind).items():
        told = totals.setdefault(products[seed], [0.0, 0])
        told[0] += outcome
        told[1] += 1
    return totals


def _by_seed(run: Run, name: str, kind: str) -> dict[int, list[float]]:
    """Start seed → the outcome of its episode."""
    told = run.get("greedy_" * (kind == "greedy") + "outcomes", {}).get(name, "")
    return {seed: [float(outcome)] for seed, outcome in enumerate(told) if outcome != "-"}
