"""Pictures of curves: where words stand in them."""

import numpy as np
import pytest
from learning.plots import _draw_points, _write_end
from matplotlib.figure import Figure

BASELINES = {"random": 0.2, "oracle": 1.0}


@pytest.mark.parametrize("ends", [[0.0, 1.0], [0.6, 0.6, 0.4], [0.3, 0.3, 0.3, 0.9, 0.35]])
def test_the_end_of_a_curve_is_written_where_no_line_is(ends: list[float]) -> None:
    """Regression: with few evaluations a steep line crossed the words, since its points were looked at only."""
    x, axes = np.linspace(0, 4000, len(ends)).tolist(), Figure().subplots()
    _write_end(axes, "a", {"a": (x, ends, ends, ends), "b": (x, [0.5] * len(ends), [], [])}, BASELINES)
    (written,) = axes.texts
    assert written.get_text() == f"ends at {100 * ends[-1]:.0f} %"
    height = written.xy[1]
    right = np.interp(np.linspace(2000, 4000, 401), x, ends)
    assert min(*np.abs(right - height), *(abs(other - height) for other in (0.2, 0.5, 1.0))) > 0.08


def test_what_is_written_is_the_evaluation_at_the_end_where_it_is_no_part_of_the_line() -> None:
    """Regression: pictures said 88 %, of 64 start states on the way, where 256 others had 78."""
    axes, x, line = Figure().subplots(), [1000.0, 4000.0], [0.7, 0.88]
    found = {"success": 0.78, "success_low": 0.73, "success_high": 0.83}
    _draw_points(axes, [(0.0, {**found, "success": 0.75}), (4000.0, found)])
    _write_end(axes, "a", {"a": (x, line, line, line)}, BASELINES, [(0.0, {**found, "success": 0.5}), (4000.0, found)])
    (written,) = axes.texts
    assert written.get_text() == "ends at 78 %"
    assert not 0.73 < written.xy[1] < 0.83
    assert [point.get_ydata()[0] for point in axes.lines if point.get_marker() == "o"] == [0.75, 0.78]
