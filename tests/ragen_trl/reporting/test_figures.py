"""The report's drawings: what is averaged, what is thinned without losing a spike, and where alerts are marked."""

import math
import re
import statistics
from pathlib import Path

import pytest

from ragen_trl.reporting.figures import (
    COLOURS,
    MARKS,
    PANELS,
    Mark,
    Panel,
    band,
    band_in_words,
    draw_panel,
    moving_average,
    run_colours,
    thin,
)
from ragen_trl.reporting.run_folder import Family, Run


def panel(title: str) -> Panel:
    (found,) = (panel for panel in PANELS if panel.title == title)
    return found


def of_entropy(*rows: int, value: float = 1.0) -> tuple[Run, ...]:
    return tuple(Run(Path("run"), {}, [{"step": step, "entropy": value} for step in range(n)]) for n in rows)


def drawn(title: str, families: list[Family], marks: list[Mark] | None = None) -> str:
    svg = draw_panel(panel(title), families, marks or [])
    assert svg is not None
    return svg


def test_long_curves_are_thinned_and_keep_their_spikes() -> None:
    values = [0.0] * 100_000
    values[77_777] = 5.0
    kept = thin(values)
    assert len(kept) <= 2000
    assert 77_777 in kept
    assert kept[0] == 0
    history = [{"step": step, "grad_norm": value} for step, value in enumerate(values)]
    assert len(drawn("Gradient norm", [Family("", (Run(Path("run"), {}, history),))])) < 200_000
    assert len(drawn("Gradient norm", [Family("", (Run(Path("run"), {}, history),) * 2)])) < 600_000


def test_the_moving_average_looks_back_only() -> None:
    assert moving_average([0.0, 0.0, 3.0, 0.0, 0.0, 0.0], window=3) == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]


def test_repetitions_have_a_mean_and_a_band() -> None:
    together = drawn("Entropy", [Family("", of_entropy(3, 9))])
    assert together.count("#111111") == 2  # line and band
    assert "#111111" not in drawn("Entropy", [Family("", of_entropy(9))])
    assert "#111111" not in drawn("Entropy", [Family("a", of_entropy(9)), Family("b", of_entropy(9))])


def test_noise_is_no_change_and_a_single_step_has_whole_ticks() -> None:
    """Regression: 0.002 nats of mutual information filled the axis, and the steps of one update were 0.98 and 1.02."""
    history = [{"step": step, "collapse/mi": 0.001 * (-1) ** step} for step in range(9)]
    flat = drawn("Mutual information", [Family("", (Run(Path("run"), {}, history),))])
    ticks = re.findall(r">\u2212?([\d.]+)</text>", flat)
    assert "0.04" in ticks
    single = drawn("Mutual information", [Family("", (Run(Path("run"), {}, history[1:2]),))])
    assert {"0", "1", "2"} <= set(re.findall(r">([\d.]+)</text>", single)) and ">1.02<" not in single


def test_runs_without_a_common_step_have_no_mean() -> None:
    apart = tuple(Run(Path("run"), {}, [{"step": step, "entropy": 1.0}]) for step in (1, 2))
    assert "#111111" not in drawn("Entropy", [Family("", apart)])


def test_families_are_told_apart_by_colour() -> None:
    families = [Family("a", of_entropy(9, 9)), Family("b", of_entropy(9))]
    assert [colour for _, colour in run_colours(families)] == [COLOURS[0], COLOURS[0], COLOURS[1]]
    svg = drawn("Entropy", families)
    assert svg.count(COLOURS[0]) == 4  # two runs, their mean, its band
    assert svg.count(COLOURS[1]) == 1
    assert [colour for _, colour in run_colours([Family("", of_entropy(9, 9))])] == list(COLOURS[:2])


def test_the_band_is_the_range_below_five_runs() -> None:
    assert band([0.3, 0.1, 0.2, 0.9]) == (0.1, 0.9)
    assert "lowest to the highest run, no confidence interval" in band_in_words([3, 1])
    assert "t interval" not in band_in_words([3, 1])


@pytest.mark.parametrize(("count", "quantile"), [(5, 2.776), (10, 2.262), (20, 2.093), (30, 2.093)])
def test_the_band_is_a_t_interval_from_five_runs_on(count: int, quantile: float) -> None:
    """Quantiles of a printed table; beyond it the last one, which is a little too large."""
    values = [math.sin(number) for number in range(count)]
    low, high = band(values)
    assert (low + high) / 2 == pytest.approx(statistics.fmean(values))
    assert (high - low) / 2 == pytest.approx(quantile * statistics.stdev(values) / math.sqrt(count))
    assert band_in_words([count]) == "Band: 95 % t interval of the mean over runs."


def test_single_runs_have_no_band() -> None:
    assert band_in_words([1, 1]) == ""


def test_thoughts_are_drawn_where_they_were_asked_for() -> None:
    """Two replies of 38,400 had sampled the tag by chance, and the page showed two points and an empty axis."""
    rows = [{"step": step, "collapse/thought_tokens": 3.0} for step in (40, 200)]
    for think, shown in ((False, False), (True, True)):
        run = Run(Path("run"), {"config": {"think": think}}, rows)
        assert (draw_panel(panel("Thought tokens"), [Family("", (run,))]) is not None) is shown


def test_alerts_are_marked_in_the_panels_that_they_are_about() -> None:
    history = [{"step": step, "entropy": 1.0, "success": 0.5, "filter/in_group_std": 1.0} for step in range(9)]
    result = dict.fromkeys(("success", "success_low", "success_high", "mean_return", "return_stderr"), 0.5)
    results = {policy: result for policy in ("random", "before", "trained", "oracle")}
    families = [Family("", (Run(Path("run"), {"results": results}, history),))]
    marks = [Mark(3, "early", "in_group_std"), Mark(5, "confirmation", "entropy"), Mark(5, "confirmation", "entropy")]
    found = {
        title: [drawn(title, families, marks).count(MARKS[kind][0]) for kind in ("early", "confirmation")]
        for title in ("Success", "In-group return std", "Entropy")
    }
    # A line and its entry in the legend, which a panel of a single curve and line has as well.
    assert found == {"Success": [2, 2], "In-group return std": [2, 0], "Entropy": [0, 2]}
