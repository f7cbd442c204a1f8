"""The report's drawings: what is averaged, and what is thinned without losing a spike."""

from pathlib import Path

from ragen_trl.figures import PANELS, draw_panel, moving_average, thin
from ragen_trl.run_folder import Run


def test_long_curves_are_thinned_and_keep_their_spikes() -> None:
    values = [0.0] * 100_000
    values[77_777] = 5.0
    kept = thin(values)
    assert len(kept) <= 2000
    assert 77_777 in kept
    assert kept[0] == 0
    history = [{"step": step, "grad_norm": value} for step, value in enumerate(values)]
    (panel,) = (panel for panel in PANELS if panel.title == "Gradient norm")
    svg = draw_panel(panel, [Run(Path("run"), {}, history)], mean=False)
    assert svg is not None and len(svg) < 200_000


def test_the_moving_average_looks_back_only() -> None:
    assert moving_average([0.0, 0.0, 3.0, 0.0, 0.0, 0.0], window=3) == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]


def test_the_mean_ends_where_the_first_run_ends() -> None:
    (panel,) = (panel for panel in PANELS if panel.title == "Entropy")
    runs = [Run(Path("run"), {}, [{"step": step, "entropy": 1.0} for step in range(n)]) for n in (3, 9)]
    with_mean, without = (draw_panel(panel, runs, mean=mean) for mean in (True, False))
    assert with_mean is not None and without is not None
    assert with_mean.count("#111111") == without.count("#111111") + 1
    apart = [Run(Path("run"), {}, [{"step": step, "entropy": 1.0}]) for step in (1, 2)]
    assert draw_panel(panel, apart, mean=True) == draw_panel(panel, apart, mean=False)  # no step in common
