"""What the results say of a claim: agrees, disagrees, cannot be told at this scale, or not run yet.

For a claim that something is *more*, by at least the smallest effect that counts:

* disagrees: the interval of the difference lies below that effect. The runs exclude what the paper found.
* agrees: it does not, and it lies above 0.
* cannot be told: it contains both 0 and the effect.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from learning.summary import seed_of, starts
from records.committed import origin

from findings.claims import Claim, Pair
from findings.intervals import (
    Interval,
    above_one,
    evaluation_arm,
    relative_interval,
    start_state_arm,
    t_interval,
)
from findings.measures import SUCCESS, Measure, Run, final_success

AGREES, DISAGREES, UNTOLD, NOT_RUN = "agrees", "disagrees", "cannot be told", "not run yet"
IN_PART, AGAINST_IN_PART = "agrees in part", "disagrees in part"
VERDICTS = (AGREES, IN_PART, AGAINST_IN_PART, DISAGREES, UNTOLD, NOT_RUN)
BASELINES = ("warm_start", "random")
Results = Mapping[str, Mapping[str, Any]]
"""By the name of the question: the content of its JSON."""


def judge(claim: Claim, found: Interval | None) -> str:
    """The verdict on a claim from the interval of its difference."""
    if found is None:
        return NOT_RUN
    effect = claim.least
    higher, lower = found.low > 0 and found.high >= effect, found.high < 0 and found.low <= -effect
    if claim.kind == "more":
        return DISAGREES if found.high < effect else AGREES if higher else UNTOLD
    if claim.kind == "no less":
        return AGREES if found.low > -effect else DISAGREES if lower else UNTOLD
    return AGREES if -effect < found.low and found.high < effect else DISAGREES if higher or lower else UNTOLD


def overall(verdicts: Sequence[str]) -> str:
    """One verdict for a claim that is asked in several places; those not run yet are left out.

    Where some places agree and others do not, it agrees in part. Where some disagree and the others cannot be told, it
    disagrees in part.
    """
    told = {verdict for verdict in verdicts if verdict != NOT_RUN}
    if not told:
        return NOT_RUN
    if len(told) == 1:
        return next(iter(told))
    return IN_PART if AGREES in told else AGAINST_IN_PART


def difference(pair: Pair, game: str, measure: Measure, results: Results) -> Interval | None:
    """Ours less theirs, paired by seed (and by start state where every episode is recorded), with a 95 % interval.

    Returns:
        The interval; of a measure that is compared as a ratio, of its logarithm. ``None`` if fewer than two seeds have
        been run on both sides from the same weights, or have the measure; of a cost, at one commit and on one machine.
    """
    every = shared_runs(pair, game, results)
    if pair.theirs in BASELINES:
        return _above_baseline([run for (run,) in every], measure, results, pair, game)
    known = [row for row in every if all(measure.of(run) is not None for run in row) and _comparable(row, pair)]
    pairs = [row for row in known if not measure.cost or len({origin(run) for run in row}) == 1]
    values = [[measure.of(run) for run in row] for row in pairs]
    if len(values) < 2:
        return None
    episodes = episodes_of(results, pair.question, game)
    differences = [row[0] - (row[1] if len(row) > 1 else 0.0) for row in values]  # type: ignore[operator]
    return t_interval(differences, _evaluations_leave_open(pairs, measure, episodes))


def _comparable(runs: Sequence[Run], pair: Pair) -> bool:
    """Whether runs of a seed began with the same weights, which those of one task should."""
    return pair.other_task != "{}" or len(starts(runs)) == 1


def _above_baseline(
    runs: Sequence[Run], measure: Measure, results: Results, pair: Pair, game: str
) -> Interval | None:
    """The runs' mean less a baseline, whose one evaluation they share; ``None`` as in `difference`.

    The error of that evaluation counts where it is known, in rates.
    """
    if len(runs) < 2:
        return None
    found = baseline(results[pair.question]["tasks"][game], pair.theirs)
    began = found["curve"][0]["success"] if pair.theirs == "warm_start" else None
    # Committed curves have six digits.
    of_it = [run for run in runs if began is None or math.isclose(run["curve"][0]["success"], began, abs_tol=1e-5)]
    ours = [value for run in of_it if (value := measure.of(run)) is not None]
    if len(ours) < 2:
        return None
    episodes, theirs = episodes_of(results, pair.question, game), measure.of(found)
    if theirs is None:
        return None
    if not any(map(measure.rates, runs)):
        return t_interval([each - theirs for each in ours])
    return above_one(ours, episodes, theirs, episodes)


def episodes_of(results: Results, question: str, task: str) -> int:
    """How many episodes an evaluation of a task plays."""
    return int(results[question]["tasks"][task]["prepared"]["settings"]["episodes"])


def baseline(task: Mapping[str, Any], policy: str) -> Run:
    """A policy that was not trained here, in the form of a run: its success in every evaluation of the task."""
    found = {name: policies[policy] for name, policies in task["prepared"]["results"].items()}
    return {"curve": [next(iter(found.values()))], "final": {"evaluations": found}}


def _evaluations_leave_open(pairs: Sequence[Sequence[Run]], measure: Measure, episodes: int) -> float:
    """Half the length of the interval that the evaluations alone give; 0 for what is neither a rate nor a date."""
    grain = max(measure.grain(run) for row in pairs for run in row)
    outcomes = [[recorded_outcomes(run) for run in row] for row in pairs]
    if measure is SUCCESS and all(len(row) == 2 and all(row) for row in outcomes):
        return start_state_arm([row[0] for row in outcomes], [row[1] for row in outcomes])
    rates = [list(chain.from_iterable(measure.rates(run) for run in row)) for row in pairs]
    return evaluation_arm(rates, episodes) if all(rates) else grain


def recorded_outcomes(run: Run) -> list[int]:
    """Success of each held-out episode of the last evaluation, in the order of start states; empty if not recorded."""
    first = next(iter(run["final"]["evaluations"].values()), {})
    return [int(outcome) for outcome in first.get("outcomes", "")]


def relative_difference(pairs: Sequence[Pair], results: Results) -> tuple[Interval | None, list[str]]:
    """The mean over games of how much higher success ends, as a share of theirs; and the games, each with its form.

    Where theirs ends at 0 in every seed there is no such share, and no mean over games: no interval.
    """
    rows: dict[str, list[tuple[float, float]]] = {}
    episodes = []
    for pair in pairs:
        for game in pair.games:
            shared = [row for row in shared_runs(pair, game, results) if _comparable(row, pair)]
            if len(shared) > 1:
                name = f"{game} ({pair.form})"
                rows[name] = [(final_success(ours), final_success(theirs)) for ours, theirs in shared]
                episodes.append(episodes_of(results, pair.question, game))
    defined = bool(rows) and all(any(theirs for _, theirs in row) for row in rows.values())
    return (relative_interval(list(rows.values()), episodes) if defined else None), list(rows)


def runs_of(results: Results, question: str, task: str, variant: str) -> dict[int, Run]:
    """The runs of a variant by seed; empty if there are none."""
    found = results.get(question, {}).get("tasks", {}).get(task, {}).get("variants", {}).get(variant)
    return {seed_of(run): run for run in found["runs"]} if found else {}


def examined(claim: Claim, results: Results) -> dict[str, Any]:
    """The claim, its figures in every place, and the verdicts."""
    if claim.pooled:
        found, games = relative_difference(claim.pairs, results)
        places = [_place(claim, "", ", ".join(games) or "all games", found, bool(games))]
    else:
        places = [_compared(claim, pair, game, results) for pair in claim.pairs for game in pair.games]
    return {
        **{name: getattr(claim, name) for name in ("name", "paper", "source", "says", "kind", "refuted", "headline")},
        "effect": claim.effect,
        "ratio": claim.measure.ratio,
        "verdict": overall([place["verdict"] for place in places]),
        "places": places,
    }


def _compared(claim: Claim, pair: Pair, game: str, results: Results) -> dict[str, Any]:
    """The place of a claim that two variants in a game are."""
    rows = shared_runs(pair, game, results)
    place = _place(claim, pair.form, game, difference(pair, game, claim.measure, results), len(rows) > 1)
    return {**place, "other_starts": len(rows) > 1 and sum(_comparable(row, pair) for row in rows) < 2}


def shared_runs(pair: Pair, game: str, results: Results) -> list[list[Run]]:
    """The runs of each seed that both sides have; of one side, where the other is a baseline or nothing."""
    ours = runs_of(results, pair.question, game, pair.ours)
    if pair.theirs in ("", *BASELINES):
        return [[ours[seed]] for seed in sorted(ours)]
    theirs = runs_of(results, pair.question, pair.other_task.format(game), pair.theirs)
    return [[ours[seed], theirs[seed]] for seed in sorted(ours.keys() & theirs.keys())]


def _place(claim: Claim, form: str, game: str, found: Interval | None, run: bool = False) -> dict[str, Any]:
    """A place's figures and verdict; where runs lack it, or their costs do not compare, nothing can be told."""
    figures = None if found is None else {name: getattr(found, name) for name in ("mean", "low", "high", "n")}
    verdict = UNTOLD if run and found is None else judge(claim, found)
    other = claim.measure.cost and verdict == UNTOLD and found is None
    return {"form": form, "game": game, "difference": figures, "other_commits": other, "verdict": verdict}
