"""What is kept of a run's log: the measures that the warning signs and the figures read, a column each.

A log has 60 numbers an update. Columns of a dozen of them, with four digits, are a fiftieth of it. Measures of a
rollout are logged at its first update only, so that columns have steps of their own. Left out: all other numbers; they
are in ``runs/`` of the machine that trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragen_trl.monitoring.alerts import LOG_KEYS

_DIGITS = 4
# Beside what alerts read: what RAGEN-2's filter depends on, and the critic. Each once a rollout.
_SHOWN = ("filter/dispersion", "critic/explained_variance")
_SIGNAL = "signal/"  # of ``learning.measure.SpreadGradients``


def measures(history: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of a log.

    Args:
        history: Rows as logged, each with its ``step``.

    Returns:
        ``series``: a list of ``steps`` with the ``values`` that were logged at them, by log key.
    """
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for row in history:
        if "train_runtime" not in row:
            for key in _kept_keys(row):
                steps, values = columns.setdefault(key, ([], []))
                steps.append(int(row["step"]))
                values.append(rounded(float(row[key]), _DIGITS))
    series: dict[tuple[int, ...], dict[str, list[float]]] = {}
    for key, (steps, values) in columns.items():
        series.setdefault(tuple(steps), {})[key] = values
    return {"series": [{"steps": list(steps), "values": values} for steps, values in series.items()]}


def rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The log again, with the kept numbers: a row a step, in ascending order.

    Example:
        >>> rows({"series": [{"steps": [1, 2], "values": {"entropy": [0.5, 0.4]}}]})
        [{'step': 1, 'entropy': 0.5}, {'step': 2, 'entropy': 0.4}]
    """
    log: dict[int, dict[str, Any]] = {}
    for part in found["series"]:
        for key, values in part["values"].items():
            for step, value in zip(part["steps"], values, strict=True):
                log.setdefault(step, {"step": step})[key] = value
    return [log[step] for step in sorted(log)]


def _kept_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys of a row that are kept: of an alert's metric the one that it reads."""
    read = [next((key for key in keys if row.get(key) is not None), None) for keys in LOG_KEYS.values()]
    signal = [key for key in row if key.startswith(_SIGNAL)]
    return [key for key in (*read, *_SHOWN, *signal) if key is not None and row.get(key) is not None]


def rounded(value: Any, digits: int) -> Any:
    """A number with so many significant digits, or all numbers in containers.

    Example:
        >>> rounded({"a": [0.123456, 7], "b": None}, 3)
        {'a': [0.123, 7], 'b': None}
    """
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [rounded(each, digits) for each in value]
    return value
