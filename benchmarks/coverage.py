"""How often the 95 % intervals of an evaluation contain the truth, by simulation.

    python benchmarks/coverage.py [--smoke]   # two minutes of one core

A cell is a number of start states, episodes of each, and a policy. How likely a start state is to be solved has a beta
distribution; the correlation is that of two episodes of a start state. Two policies find half of the start states
equally difficult. *Any rate* is uniform, drawn for each interval. The interval of a return is its mean ± t standard
errors; a skewed one is 1 in a tenth of all episodes, else 0. All intervals of a cell are computed at once, by the
formulas of `ragen_trl/algorithms/intervals.py`, and some are compared with what its functions give.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from record import place, table, write
from scipy.special import betaincinv, stdtrit

from ragen_trl.algorithms.intervals import paired_difference, rate_interval

STARTS, EPISODES, CORRELATIONS = (6, 12, 25, 50, 100, 500), (1, 4, 16), (0.0, 0.1, 0.25, 0.5)
RATES = (0.02, 0.1, 0.3, 0.5, 0.9)
PAIRS = ((0.1, 0.1), (0.5, 0.5), (0.02, 0.1), (0.1, 0.9))
Cell = dict[str, Any]
Limits = tuple[np.ndarray, np.ndarray]
"""Of every interval, shape (draws,)."""


def main() -> None:
    """Simulate every cell, and write how many intervals contain the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000, help="intervals for each cell")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    starts, draws = (STARTS[:2], 50) if asked.smoke else (STARTS, asked.draws)
    cells = [{**cell, "covered": coverage(cell, draws)} for count in starts for cell in cells_of(count)]
    rows: defaultdict[str, list[str]] = defaultdict(list)  # start states × episodes, policy → by correlation
    for cell in cells:
        name = f"{cell['starts']} x {cell['episodes']}, {cell['of']} {cell['policy']}"
        rows[name].append(f"{cell['covered']:.4f}")
    command, path = f"python benchmarks/coverage.py --draws {draws}", place("coverage", asked.smoke, asked.out)
    coverages = {name: " ".join(each) for name, each in rows.items()}
    write(path, command, correlations=CORRELATIONS, coverages=coverages, table=shown(cells, starts, draws))


def cells_of(starts: int) -> Iterator[Cell]:
    """All cells with so many start states; a single episode shows nothing of a correlation."""
    for episodes in EPISODES:
        for correlation in CORRELATIONS if episodes > 1 else CORRELATIONS[:1]:
            same = {"starts": starts, "episodes": episodes, "correlation": correlation}
            yield from ({**same, "of": "rate", "policy": rate} for rate in RATES)
            yield from ({**same, "of": kind, "policy": "–"} for kind in ("any rate", "normal return", "skewed return"))
            yield from ({**same, "of": "difference", "policy": pair} for pair in PAIRS)


def coverage(cell: Cell, draws: int) -> float:
    """The share of a cell's intervals that contain the truth; its seed is the cell itself."""
    random, of = np.random.default_rng(list(map(ord, str(cell)))), cell["of"]
    starts, episodes, correlation = cell["starts"], cell["episodes"], cell["correlation"]
    spread, size = 1 / max(correlation, 1e-6) - 1, (draws, starts)
    if of == "difference":
        truth, places = cell["policy"][0] - cell["policy"][1], random.integers(4096, size=(2, *size))
        places[1] = np.where(random.random(size) < 0.5, places[0], places[1])
        between = (np.arange(4096) + 0.5) / 4096
        quantiles = [betaincinv(spread * rate, spread * (1 - rate), between) for rate in cell["policy"]]
        ours, theirs = (random.binomial(episodes, each[at]) for each, at in zip(quantiles, places, strict=True))
        limits = difference_limits(ours, theirs, episodes)
    elif of == "normal return":
        truth, scale = 0.0, np.sqrt(correlation + (1 - correlation) / episodes)
        limits = mean_limits(scale * random.normal(size=size))
    else:
        rate = {"rate": cell["policy"], "skewed return": 0.1}.get(of)
        truth = random.random((draws, 1)) if rate is None else np.full((draws, 1), rate)
        won = random.binomial(episodes, random.beta(spread * truth, spread * (1 - truth), size))
        limits = mean_limits(won / episodes) if of == "skewed return" else rate_limits(won, episodes)
        truth = truth[:, 0]
    return float(np.mean((limits[0] <= truth) & (truth <= limits[1])))


def mean_limits(means: np.ndarray) -> Limits:
    """Student's t over the means of start states, shape (draws, starts)."""
    starts = means.shape[1]
    arms = stdtrit(starts - 1, 0.975) * means.std(axis=1, ddof=1) / np.sqrt(starts)
    return means.mean(axis=1) - arms, means.mean(axis=1) + arms


def rate_limits(won: np.ndarray, episodes: int) -> Limits:
    """`rate_interval` of the successes in so many episodes of each start state, shape (draws, starts)."""
    starts = won.shape[1]
    n, rate, trials = starts * episodes, won.mean(axis=1) / episodes, np.full(len(won), float(starts))
    unlike = np.minimum((won > 0).sum(axis=1), (won < episodes).sum(axis=1))
    if episodes > 1:
        before, estimated = 6 / (episodes - 1), np.minimum(starts - 1, 2 * np.maximum(0, unlike - 1))
        effect = won.var(axis=1, ddof=1) / episodes / np.maximum(rate * (1 - rate), 1e-9)
        effect = (before + estimated * effect) / (before + estimated)
        worth = np.minimum(2, (1.959964 / stdtrit(before + estimated, 0.975)) ** 2 / effect) * n
        trials = np.where(unlike, np.maximum(starts, worth), starts)
    ends, lost = rate * trials, (1 - rate) * trials
    low = np.where(ends > 0, betaincinv(ends + 0.25, lost + 0.75, 0.025), 0)
    high = np.where(lost > 0, betaincinv(ends + 0.75, lost + 0.25, 0.975), 1)
    for at in range(10):
        found = rate_interval(won[at].tolist(), [episodes] * starts)
        np.testing.assert_allclose(found, (low[at], high[at]), atol=1e-6)
    return low, high


def difference_limits(ours: np.ndarray, theirs: np.ndarray, episodes: int) -> Limits:
    """`paired_difference` of the successes in so many episodes of each start state, shape (draws, starts)."""
    starts, differences = ours.shape[1], (ours - theirs) / episodes
    before = 6 / (episodes - 1) if episodes > 1 else np.inf
    estimated = np.minimum(starts - 1, 2 * np.maximum(0, (differences != 0).sum(axis=1) - 1))
    centre = differences.sum(axis=1) / (starts + 1)
    squares = (differences**2).sum(axis=1) + 1 / episodes
    arms = np.sqrt((squares / (starts + 1) - centre**2) / starts)
    arms *= stdtrit(np.clip(before + estimated, 1, starts - 1), 0.975)
    low, high = np.maximum(-1, centre - arms), np.minimum(1, centre + arms)
    outcomes = [[1] * count + [0] * (episodes - count) for count in range(episodes + 1)]
    for at in range(10):
        both = ({start: outcomes[count] for start, count in enumerate(won[at])} for won in (ours, theirs))
        found = paired_difference(*both) or {}
        np.testing.assert_allclose((found["low"], found["high"]), (low[at], high[at]), atol=1e-6)
    return low, high


def shown(cells: list[Cell], starts: tuple[int, ...], draws: int) -> dict[str, Any]:
    """One row for each number of start states; of each kind of interval the mean and the range over its cells."""

    def spread(**wanted: Any) -> str:
        found = [cell["covered"] for cell in cells if all(cell[name] == value for name, value in wanted.items())]
        return f"{fmean(found):.3f} ({min(found):.3f}–{max(found):.3f})"

    others = ["any rate", "difference", "skewed return"]  # a normal one's t interval is exact
    kinds = [{"of": "rate", "episodes": episodes} for episodes in EPISODES] + [{"of": kind} for kind in others]
    columns = ["start states", *(f"rate, {episodes} each" for episodes in EPISODES), *others]
    note = f"Mean (least–most) over cells of {draws:,} intervals."
    return table(columns, [[count, *(spread(starts=count, **kind) for kind in kinds)] for count in starts], note)


if __name__ == "__main__":
    main()
