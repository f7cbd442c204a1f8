"""RAGEN's Figure 6 over all runs: do spread within groups, entropy, gradient norm and length turn before success falls?

A series *turns* by the rule by which success drops (``drop_step``): at the step from which it stays below a share of
its highest value so far, or above the inverse share of its lowest, for what rises. That is seen after the run only: it
says whether a sign is there at all. ``warning_signs.py`` judges the alerts, which see nothing of what comes later.

A sign has its first value at the first evaluation after the start, and turns at the second one at the earliest. A
drop up to there comes before any sign could: such a run says nothing of signs and is in no count of drops.

Two shares are counted: 0.85, as for success, and 0.7, which fewer healthy runs reach.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from learning.summary import seed_of
from learning.tasks import game_of

from findings.measures import Measure, Run, Series, logged, one_evaluation
from ragen_envs import wilson_score
from ragen_trl.monitoring.alerts import drop_step

# Fewer evaluations do not show when something turned.
FEWEST_EVALUATIONS = 9
SHARES = (0.85, 0.7)


@dataclass(frozen=True)
class Sign:
    """A series that is said to warn.

    Attributes:
        says: Its name in tables and figures.
        keys: Its names in logs; the first one that a run has is read.
        falls: Whether a fall is a sign.
        rises: Whether a rise is one.
    """

    says: str
    keys: tuple[str, ...]
    falls: bool = True
    rises: bool = False


SPREAD = Sign("std within groups", ("filter/in_group_std", "in_group_std"))
ENTROPY = Sign("entropy", ("entropy",), rises=True)
GRADIENT = Sign("gradient norm", ("grad_norm",), falls=False, rises=True)
LENGTH = Sign("reply length", ("collapse/reply_tokens",), rises=True)  # evaluations have tokens an episode only
SIGNS = (SPREAD, ENTROPY, GRADIENT, LENGTH)


def series(run: Run, sign: Sign) -> Series:
    """The points of a sign in a run, none if it was not logged."""
    found = logged(run)
    return next((found[key] for key in sign.keys if key in found), [])


def between_evaluations(run: Run, points: Series) -> Series:
    """Means of what was logged from one evaluation to the next, at the step of the later one."""
    edges = [float(row["step"]) for row in run["curve"]]
    inside = {
        after: [value for step, value in points if before < step <= after] for before, after in pairwise(edges)
    }
    return [(after, fmean(values)) for after, values in inside.items() if values]


def turn(run: Run, sign: Sign, share: float = SHARES[0]) -> int | None:
    """The step at which the sign turns, ``None`` if it never does or was not logged.

    It is looked at between evaluations, as success is.
    """
    means = between_evaluations(run, series(run, sign))
    steps, values = [int(step) for step, _ in means], [mean for _, mean in means]
    if not values or min(values) < 0:
        return None
    turned = []
    if sign.falls:
        turned.append(drop_step(steps, values, share))
    if sign.rises and min(values) > 0:
        turned.append(drop_step(steps, [1 / value for value in values], share))
    return min((step for step in turned if step is not None), default=None)


def dropped(run: Run) -> int | None:
    """The step at which success on held-out start states drops for good."""
    return drop_step([row["step"] for row in run["curve"]], [row["success"] for row in run["curve"]])


def drops_at_once(run: Run) -> bool:
    """Whether success drops before a sign can turn, at the second evaluation after the start or before."""
    drop = dropped(run)
    return drop is not None and drop <= run["curve"][:3][-1]["step"]


def lead(sign: Sign) -> Measure:
    """How long before the drop the sign turns, as a share of the run; ``None`` for a run that does not drop.

    A sign that never turns counts as one that turns at the end. ``None``, too, if the run drops at once.
    """

    def of(run: Run) -> float | None:
        drop, last = dropped(run), run["curve"][-1]["step"]
        if drop is None or drops_at_once(run) or not series(run, sign):
            return None
        found = turn(run, sign)
        return float(drop - (last if found is None else found)) / last

    return Measure(f"time from the turn of the {sign.says} to the drop, share of the run", of, grain=one_evaluation)


def every_run(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], Run]]:
    """Each run that was evaluated often enough, with what it is called; one that several questions share comes once."""
    seen: set[str] = set()
    for question, content in results.items():
        for task, found in content["tasks"].items():
            game = game_of(found["prepared"]["settings"])
            for variant in found["variants"].values():
                for run in variant["runs"]:
                    if len(run["curve"]) >= FEWEST_EVALUATIONS and run["digest"] not in seen:
                        seen.add(run["digest"])
                        yield {"question": question, "task": task, "game": game, "variant": variant["label"]}, run


def judged(runs: Iterable[tuple[Mapping[str, Any], Run]]) -> list[dict[str, Any]]:
    """A row a run: when its success dropped, and when each sign turned (absent if it was not logged)."""
    return [
        {
            **names,
            "seed": seed_of(run),
            "steps": run["curve"][-1]["step"],
            "drop": dropped(run),
            "at_once": drops_at_once(run),
            "turns": {
                sign.says: [turn(run, sign, share) for share in SHARES] for sign in SIGNS if series(run, sign)
            },
        }
        for names, run in runs
    ]


def counts(rows: Sequence[Mapping[str, Any]], shares: Sequence[float] = SHARES) -> list[dict[str, Any]]:
    """For each sign: before how many drops it turned, and in how many runs without one, with Wilson intervals.

    Drops at once are left out. Leads are in updates.
    """
    found = []
    for sign, place in product(SIGNS, map(SHARES.index, shares)):
        known = [row for row in rows if sign.says in row["turns"] and not row["at_once"]]
        turns = [(row["turns"][sign.says][place], row["drop"]) for row in known]
        drops = [(step, drop) for step, drop in turns if drop is not None]
        leads = [drop - step for step, drop in drops if step is not None and step < drop]
        healthy = [step for step, drop in turns if drop is None]
        found.append(
            {
                "sign": sign.says,
                "share": SHARES[place],
                "before": _rate(len(leads), len(drops)),
                "never": sum(step is None for step, _ in drops),
                "leads": sorted(leads),
                "false": _rate(sum(step is not None for step in healthy), len(healthy)),
            }
        )
    return found


def by_game(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows by their game: those with the most drops that a sign could come before first."""
    games: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        games.setdefault(row["game"], []).append(row)
    drops = {
        game: sum(row["drop"] is not None and not row["at_once"] for row in chosen) for game, chosen in games.items()
    }
    return {game: games[game] for game in sorted(games, key=lambda game: (-drops[game], game))}


def _rate(count: int, of: int) -> dict[str, Any]:
    """A share with its 95 % Wilson interval: ``count``, ``of``, ``low``, ``high``; of nothing, 0 to 1."""
    low, high = wilson_score(count / of, of) if of else (0.0, 1.0)
    return {"count": count, "of": of, "low": low, "high": high}
