"""What benchmarks/shared_prefixes.py measures and how it puts that together."""

from dataclasses import asdict

import pytest
import shared_prefixes
from measuring.prefixes import Case, measure
from pages.updates import sharing_table


@pytest.mark.parametrize("work", ["update", "critic", "warm start"])
def test_with_and_without_sharing_the_same_is_measured(work: str) -> None:
    for shares in (False, True):
        found = measure(Case(work, None, rows=4, batch_size=2), shares, repeats=2)
        assert len(found["seconds"]) == 2 and min(found["seconds"]) > 0


def test_ratios_are_of_medians() -> None:
    apart = [{"seconds": [2.0, 4.0], "peak_mib": 100.0}, {"seconds": [9.0], "peak_mib": 300.0}]
    shared = [{"seconds": [1.0, 2.0, 2.0], "peak_mib": 50.0}]
    case = Case("update", "models/Some-Model", rank=8)
    row = shared_prefixes.row_of(case, apart, shared)
    assert row["case"] == {**asdict(case), "model": "Some-Model"}
    assert (row["seconds_ratio"], row["peak_mib_ratio"]) == (0.5, 0.25)
    table = sharing_table({"rows": [row], "commit": "0123456789ab"})
    assert "| Some-Model | update | LoRA, r = 8 | no | 16 | 8 | 4.00, 2.00 | 0.50 | 200, 50 | 0.25 |" in table
