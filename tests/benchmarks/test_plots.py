"""Pictures of curves: where words stand in them."""

import numpy as np
import pytest
from learning.plots import _write_end
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
