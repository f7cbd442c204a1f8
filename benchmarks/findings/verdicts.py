"""What the results say of a claim: agrees, disagrees, cannot be told at this scale, or not run yet.

For a claim that something is *more*, by at least the smallest effect that counts:

* disagrees: the interval of the difference lies below that effect. The runs exclude what the paper found.
* agrees: it does not, and it lies above 0.
* cannot be told: it contains both 0 and the effect.

Nor can it be told where the effect could not have shown: where what ours is compared with is closer to the oracle
than the effect is large, where neither ends above its warm start, or where the collapse that should be prevented is
not there. And where two tasks with a warm start each are compared, training has to add to the difference, or it was
there before.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Any

from learning.summary import seed_of, starts
from records.committed import origin

from findings.claims import COLLAPSED, COUNTS, Claim, Pair
from findings.intervals import (
    Interval,
    above_one,
    evaluation_arm,
    relative_interval,
    start_state_arm,
    t_interval,
)
from findings.measures import BEST, FALL, SUCCESS, Measure, Run, final_success, lasting_best

AGREES, DISAGREES, UNTOLD, NOT_RUN = "agrees", "disagrees", "cannot be told", "not run yet"
IN_PART, AGAINST_IN_PART = "agrees in part", "disagrees in part"
VERDICTS = (AGREES, IN_PART, AGAINST_IN_PART, DISAGREES, UNTOLD, NOT_RUN)
BASELINES = ("warm_start", "random")
Results = Mapping[str, Mapping[str, Any]]
"""By the name of the question: the content of its JSON."""
Planned = Callable[[Pair, str], int]
"""How many seeds two variants of a game are to have; 0: not known."""
# By the kind of a claim: the verdicts that mean nothing where the effect could not have shown.
_VAIN = {"more": {DISAGREES}, "no less": {AGREES}, "alike": {AGREES}}


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
        been run on both sides from the same weights, or have the measure; of a cost, at one commit and on one machine;
        or if no run got as far as the measure.
    """
    every = shared_runs(pair, game, results)
    if pair.theirs in BASELINES:
        return _above_baseline([run for (run,) in every], measure, results, pair, game)
    known = [row for row in every if all(measure.of(run) is not None for run in row) and _comparable(row, pair)]
    pairs = [row for row in known if not measure.cost or len({origin(run) for run in row}) == 1]
    values = [[float(measure.of(run) or 0.0) for run in row] for row in pairs]
    if len(values) < 2 or all(value == measure.limit for row in values for value in row):
        return None
    episodes = episodes_of(results, pair.question, game)
    differences = [row[0] - (row[1] if len(row) > 1 else 0.0) for row in values]
    found = t_interval(differences, _evaluations_leave_open(pairs, measure, episodes))
    chance = fmean(measure.chance(row[0]) for row in pairs)
    return replace(found, low=found.low - max(chance, 0.0), high=found.high - min(chance, 0.0))


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
    of_it = [run for run in runs if pair.theirs != "warm_start" or began_with(run, found)]
    ours = [value for run in of_it if (value := measure.of(run)) is not None]
    if len(ours) < 2:
        return None
    episodes, theirs = episodes_of(results, pair.question, game), measure.of(found)
    if theirs is None:
        return None
    if not any(map(measure.rates, runs)):
        return t_interval([each - theirs for each in ours])
    return above_one(ours, episodes, theirs, episodes)


def began_with(run: Run, warm_start: Run) -> bool:
    """Whether a run began with that warm start, by the success of both; committed curves have six digits."""
    return math.isclose(run["curve"][0]["success"], warm_start["curve"][0]["success"], abs_tol=1e-5)


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
    unit = fmean(measure.unit(run) for row in pairs for run in row)
    return evaluation_arm(rates, episodes) / unit if all(rates) else grain


def recorded_outcomes(run: Run) -> list[int]:
    """Success of each held-out episode of the last evaluation, in the order of start states; empty if not recorded."""
    first = next(iter(run["final"]["evaluations"].values()), {})
    return [int(outcome) for outcome in first.get("outcomes", "")]


def relative_difference(pairs: Sequence[Pair], results: Results) -> tuple[Interval | None, dict[str, list[list[Run]]]]:
    """The mean over games of how much higher success ends, as a share of theirs.

    Returns:
        The interval, of the games in which theirs does not end at 0 in every seed; and by game the runs that compare.
    """
    rows, episodes, games = [], [], {}
    for pair in pairs:
        for game in pair.games:
            games[game] = [row for row in shared_runs(pair, game, results) if _comparable(row, pair)]
            ends = [(final_success(ours), final_success(theirs)) for ours, theirs in games[game]]
            if len(ends) > 1 and any(theirs for _, theirs in ends):
                rows.append(ends)
                episodes.append(episodes_of(results, pair.question, game))
    return (relative_interval(rows, episodes) if rows else None), games


def runs_of(results: Results, question: str, task: str, variant: str) -> dict[int, Run]:
    """The runs of a variant by seed; empty if there are none."""
    found = results.get(question, {}).get("tasks", {}).get(task, {}).get("variants", {}).get(variant)
    return {seed_of(run): run for run in found["runs"]} if found else {}


def examined(claim: Claim, results: Results, planned: Planned = lambda pair, game: 0) -> dict[str, Any]:
    """The claim, its figures in every place, and the verdicts.

    Args:
        claim: What is asked.
        results: By the name of the question.
        planned: How many seeds a place is to have.
    """
    if claim.pooled:
        by_form: dict[str, list[Pair]] = {}
        for pair in claim.pairs:
            by_form.setdefault(pair.form, []).append(pair)
        places = [_pooled(claim, form, pairs, results, planned) for form, pairs in by_form.items()]
    else:
        places = [_compared(claim, pair, game, results, planned) for pair in claim.pairs for game in pair.games]
    return {
        **{name: getattr(claim, name) for name in ("name", "paper", "source", "says", "kind", "refuted", "headline")},
        "questions": list(dict.fromkeys(pair.question for pair in claim.pairs)),
        "effect": claim.effect,
        "ratio": claim.measure.ratio,
        "verdict": overall([place["verdict"] for place in places]),
        "places": places,
    }


def _pooled(
    claim: Claim, form: str, pairs: Sequence[Pair], results: Results, planned: Planned
) -> dict[str, Any]:
    """The place of a claim on the mean over games that one form of the algorithm is."""
    found, games = relative_difference(pairs, results)
    verdict, why = judge(claim, found), []
    missing = [game for game, rows in games.items() if len(rows) < 2]
    ends = {game: [final_success(row[1]) for row in rows] for game, rows in games.items() if game not in missing}
    of_nothing = [game for game, theirs in ends.items() if not any(theirs)]
    if of_nothing:
        verdict = UNTOLD
        why.append(f"without {', '.join(of_nothing)}: their success ends at 0, so there is no ratio")
    if missing:
        why.append(f"not run yet: {', '.join(missing)}")
    counted = {game: games[game] for game in ends if game not in of_nothing}
    hidden = [game for pair in pairs for game in pair.games if game in counted and _hides(claim, pair, game, results)]
    telling = [game for game in counted if game not in hidden]
    if hidden:
        shown, _ = relative_difference([replace(pair, games=telling) for pair in pairs], results)
        figures = "" if shown is None else f"; without them {shown.mean:+.3f} [{shown.low:.3f}, {shown.high:.3f}]"
        why.append(f"nothing could have shown in {', '.join(hidden)}{figures}")
        verdict = verdict if judge(claim, shown) == verdict else UNTOLD
    wanted = {game: planned(pair, game) for pair in pairs for game in pair.games}
    named = ", ".join(telling) + f" (and {', '.join(hidden)})" * bool(hidden) if counted else "all games"
    place = _place(form, named, found, verdict, "; ".join(why), [*counted.values()])
    lacks = any(len(rows) < wanted[game] for game, rows in games.items())
    planned_seeds = max((wanted[game] for game in counted), default=0)
    return {**place, "effect": claim.effect, "planned": planned_seeds, "lacks": lacks}


def _compared(claim: Claim, pair: Pair, game: str, results: Results, planned: Planned) -> dict[str, Any]:
    """The place of a claim that two variants in a game are."""
    claim = claim if pair.effect is None else replace(claim, effect=pair.effect)
    found = difference(pair, game, claim.measure, results)
    verdict, why = judge(claim, found), ""
    every = shared_runs(pair, game, results)
    rows = [row for row in every if _comparable(row, pair)]
    vain = verdict in _VAIN[claim.kind]
    if found is None:
        if len(every) > 1:
            verdict, why = UNTOLD, _missing(claim.measure, pair, game, rows, results)
    elif pair.collapses and (vain or claim.kind == "more") and (stands := _stands(pair, game, results)):
        verdict, why = UNTOLD, stands
    elif vain and (blind := _blind(claim, pair, game, rows, results)):
        verdict, why = UNTOLD, blind
    elif apart := _starts_apart(claim, pair, game, rows, results, found, verdict):
        verdict, why = UNTOLD, apart
    wanted = planned(pair, game)
    place = _place(pair.form, game, found, verdict, why, [rows])
    return {**place, "effect": claim.effect, "planned": wanted, "lacks": verdict != NOT_RUN and len(every) < wanted}


def _hides(claim: Claim, pair: Pair, game: str, results: Results) -> bool:
    """Whether a game of a mean over games could have shown no difference that counts."""
    rows = [row for row in shared_runs(pair, game, results) if _comparable(row, pair)]
    return bool(_blind(replace(claim, effect=COUNTS), pair, game, rows, results))


def _starts_apart(
    claim: Claim, pair: Pair, game: str, rows: Sequence[Sequence[Run]], results: Results, found: Interval, verdict: str
) -> str:
    """Why a difference need not come of training, where both sides have a warm start of their own."""
    if pair.other_task == "{}" or not claim.measure.level or verdict == UNTOLD:
        return ""
    gains = _gains(claim.measure, pair, game, rows, results)
    if gains is None:
        return ""
    added = gains[0] - gains[1]
    if claim.kind == "more":
        told = added > 0 if verdict == AGREES else added < claim.effect
    else:
        told = verdict == AGREES or added * found.mean > 0
    return "" if told else f"the warm starts differ by {found.mean - added:+.2f}, and training adds {added:+.2f}"


def _missing(measure: Measure, pair: Pair, game: str, rows: Sequence[Sequence[Run]], results: Results) -> str:
    """Why runs that are there have no difference; ``rows`` are those that began with the same weights."""
    if pair.theirs == "warm_start":
        began = baseline(results[pair.question]["tasks"][game], pair.theirs)
        rows = [row for row in rows if began_with(row[0], began)]
    if len(rows) < 2:
        return "runs of other warm starts"
    known = sum(all(measure.of(run) is not None for run in row) for row in rows)
    return "runs of other commits or machines" if measure.cost and known > 1 else measure.lacking


def _blind(claim: Claim, pair: Pair, game: str, rows: Sequence[Sequence[Run]], results: Results) -> str:
    """Why the effect could not have shown in a place; empty where it could, or where that is not known."""
    if not claim.measure.level:
        return ""
    measure, tasks = claim.measure, results[pair.question]["tasks"]
    if claim.kind == "more":
        known, oracle = pair.theirs in BASELINES, baseline(tasks[pair.other_task.format(game)], "oracle")
        theirs = [baseline(tasks[game], pair.theirs)] if known else [row[-1] for row in rows]
        reached, best = _mean(measure, theirs), _mean(measure, [oracle])
        if reached is not None and best is not None and reached + claim.effect > best:
            return f"no room: they have {reached:.2f}"
    if pair.theirs in ("", *BASELINES):
        return ""
    gains = _gains(measure, pair, game, rows, results)
    if gains is None or pair.collapses:  # of a collapse it is known that they moved
        return ""
    if claim.kind == "more":
        return "neither ends as far above its warm start" if max(gains) < claim.effect else ""
    return "neither moved from its warm start" if max(map(abs, gains)) < claim.effect else ""


def _gains(
    measure: Measure, pair: Pair, game: str, rows: Sequence[Sequence[Run]], results: Results
) -> list[float] | None:
    """How far both sides end from their warm start, in the mean of their runs; ``None`` if one is not known."""
    # The best of many evaluations is above the warm start's by chance.
    lasting = replace(measure, of=lasting_best) if measure is BEST else measure
    gains = []
    for side, task in enumerate((game, pair.other_task.format(game))):
        at_first = [{**row[side], "curve": row[side]["curve"][:1]} for row in rows]
        start = [baseline(results[pair.question]["tasks"][task], "warm_start")]
        ended = _mean(lasting, [row[side] for row in rows])
        began = _mean(measure, at_first if measure in (SUCCESS, BEST) else start)
        if ended is None or began is None:
            return None
        gains.append(ended - began)
    return gains


def _stands(pair: Pair, game: str, results: Results) -> str:
    """Why there is nothing to prevent: that a variant which should collapse does not, or that it cannot be told."""
    found = difference(replace(pair, ours=pair.collapses, theirs=""), game, FALL, results)
    label = results[pair.question]["tasks"][game]["variants"].get(pair.collapses, {}).get("label", pair.collapses)
    if found is None:
        return f"{label} is not run yet"
    if found.high < COLLAPSED:
        return f"{label} does not collapse"
    return "" if found.low > 0 else f"whether {label} collapses cannot be told"


def _mean(measure: Measure, runs: Sequence[Run]) -> float | None:
    """The mean over the runs that have it."""
    known = [value for run in runs if (value := measure.of(run)) is not None]
    return fmean(known) if known else None


def shared_runs(pair: Pair, game: str, results: Results) -> list[list[Run]]:
    """The runs of each seed that both sides have; of one side, where the other is a baseline or nothing."""
    ours = runs_of(results, pair.question, game, pair.ours)
    if pair.theirs in ("", *BASELINES):
        return [[ours[seed]] for seed in sorted(ours)]
    theirs = runs_of(results, pair.question, pair.other_task.format(game), pair.theirs)
    return [[ours[seed], theirs[seed]] for seed in sorted(ours.keys() & theirs.keys())]


def _place(
    form: str, game: str, found: Interval | None, verdict: str, why: str, rows: Sequence[Sequence[Sequence[Run]]]
) -> dict[str, Any]:
    """A place's figures and verdict, why it cannot be told if not by the figures, and how long both sides trained."""
    figures = None if found is None else {name: getattr(found, name) for name in ("mean", "low", "high", "n")}
    ends = [run["curve"][-1] for of_game in rows for row in of_game for run in row]
    trained = {name: list(dict.fromkeys(end[name] for end in ends)) for name in ("step", "trajectories")}
    return {"form": form, "game": game, "trained": trained, "difference": figures, "verdict": verdict, "why": why}
