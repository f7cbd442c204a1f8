"""The tables of an evaluation, cell by cell."""

from typing import Any

from ragen_trl.evaluation.tables import result_table


def result(success: float, low: float, high: float, **values: Any) -> dict[str, Any]:
    numbers = {"mean_return": success, "return_stderr": 0.01, "format_valid": 1.0, "turns": 2.5, "reply_tokens": 30.0}
    rest = {"n": 128, "left_out": 0, "pass_at_k": {}, "score": None}
    return {"success": success, "success_low": low, "success_high": high, **numbers, **rest, **values}


def above(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "starts": 128}


PASSES = {k: {"value": v, "low": v - 0.1, "high": v + 0.1, "starts": 32} for k, v in (("1", 0.5), ("2", 0.75))}
LAKE = {
    "random": result(0.2, 0.1, 0.3),
    "runs/a|b": result(0.5, 0.4, 0.6, pass_at_k=PASSES, left_out=3, differences={"random": above(0.3)}),
    "oracle": {"not_played": "no oracle policy: nobody wrote one"},
}


def test_the_cells() -> None:
    titles, *rows = result_table(LAKE)
    assert titles[:4] == ["policy", "success [95 %]", "above random", "pass@2 [95 %]"]  # pass@1 is the success rate
    assert rows[1] == [
        *("runs/a|b", "0.500 [0.400, 0.600]", "+0.300 [+0.200, +0.400]", "0.750 [0.650, 0.850]", "0.500 ± 0.010"),
        *("1.000", "2.50", "30.0", "128 (+3 failed)"),
    ]
    assert rows[0][2:4] == ["", ""]  # neither a difference nor a pass@2 of the random policy
    assert rows[2][:3] == ["oracle", "not played", ""]
    assert {len(row) for row in rows} == {len(titles)}
