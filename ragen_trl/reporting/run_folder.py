"""Reads a finished run from its folder: ``summary.json`` (the results) and ``history.json`` (the logged rows).

Runs that differ only in their seed are a family, which the report shows together. An incomplete run is refused, because
a page about it looks like one about a run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from ragen_trl.errors import UserError

_SUMMARY: dict[str, type | tuple[type, ...]] = {
    "command": str,
    "commit": (str, NoneType),
    "created": str,
    "versions": dict,
    "machine": dict,
    "seed": int,
    "env": str,
    "env_kwargs": dict,
    "algo": str,
    "model": str,
    "parameters": int,
    "config": dict,
    "results": dict,
    "seconds": dict,
    "trajectories": dict,
}
# Rows in the order of every table: random policy, start of training, end of training, best possible policy.
POLICIES = ("random", "before", "trained", "oracle")
# An environment may lack these; their result is then ``{"not_played": reason}``.
_BASELINES = ("random", "oracle")
# The fields of `EvaluationResult` that are shown. Its module loads torch and is not imported here.
_RESULT = ("n", "success", "success_low", "success_high", "mean_return", "return_stderr", "format_valid", "turns")
# Keys of a summary that runs are compared by, besides their options.
_COMPARED = ("algo", "env", "env_kwargs", "model")
# Runs that differ only in these options, the place of the run and its random seeds, repeat each other.
_OF_ONE_REPETITION = {"seed", "data_seed", "output_dir", "logging_dir", "run_name"}


class RunNotFoundError(UserError, FileNotFoundError):
    """A folder holds no finished run."""


@dataclass(frozen=True)
class Run:
    """One finished training run.

    Attributes:
        path: Its folder.
        summary: The content of ``summary.json``, with everything that the report reads.
        history: The logged rows in order, each with a ``step``; any other metric may be missing or ``None``.
    """

    path: Path
    summary: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def steps(self) -> int:
        """The last logged step."""
        return max((int(row["step"]) for row in self.history), default=0)

    def series(self, metric: str) -> tuple[list[float], list[float]]:
        """Steps and values of a metric in the order of steps, without rows that have no finite number.

        Of a step that was logged twice (a resumed run repeats some), the last value counts. A run that asked for no
        thoughts has none, whatever was sampled by chance.
        """
        if metric.startswith("collapse/thought_") and self.summary.get("config", {}).get("think") is False:
            return [], []
        points = {row["step"]: float(row[metric]) for row in self.history if _is_number(row.get(metric))}
        steps = sorted(points)
        return [float(step) for step in steps], [points[step] for step in steps]


def read_run(folder: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunNotFoundError: If the folder, its ``summary.json`` or its ``history.json`` does not exist.
        ValueError: If one of the files is incomplete; the message names the file and what is wrong.
    """
    folder = Path(folder)
    summary_path, history_path = folder / "summary.json", folder / "history.json"
    summary, history = _load(summary_path), _load(history_path)
    check_summary(summary, str(summary_path))
    if not isinstance(history, list) or not all(_is_row(row) for row in history):
        raise ValueError(f"{history_path}: not a list of log rows that each have a 'step'")
    return Run(folder, summary, history)


def check_summary(summary: Any, where: str) -> None:
    """Raise ``ValueError``, naming ``where``, unless ``summary`` has everything that the report reads."""
    if not isinstance(summary, dict):
        raise ValueError(f"{where}: holds a {type(summary).__name__}, not an object")
    for key, kind in _SUMMARY.items():
        if key not in summary:
            raise ValueError(f"{where}: no key {key!r}")
        if not isinstance(summary[key], kind):
            raise ValueError(f"{where}: {key!r} is {summary[key]!r}, of the wrong type")
    check_results(summary, where)


def check_results(summary: Mapping[str, Any], where: str) -> None:
    """The part of ``check_summary`` about the four results."""
    results = summary.get("results")
    if not isinstance(results, dict):
        raise ValueError(f"{where}: 'results' is {results!r}, not an object")
    for policy in POLICIES:
        result = results.get(policy)
        if not isinstance(result, dict):
            raise ValueError(f"{where}: no result for {policy!r}; every run needs {', '.join(POLICIES)}")
        if policy in _BASELINES and isinstance(result.get("not_played"), str):
            continue
        for field in _RESULT:
            if not _is_number(result.get(field)):
                raise ValueError(f"{where}: results.{policy}.{field} is {result.get(field)!r}, not a number")


def played(summary: Mapping[str, Any], policies: Sequence[str] = POLICIES) -> dict[str, dict[str, Any]]:
    """The results of those policies that were played, in the order of ``policies``."""
    results = summary["results"]
    return {policy: results[policy] for policy in policies if "not_played" not in results[policy]}


def policy_label(summary: Mapping[str, Any], policy: str) -> str:
    """The label of a row of results: the start of training is called "(warm start)" if there was one."""
    if policy == "before" and summary.get("warm_started") is True:
        return "(warm start)"
    return f"({policy})" if policy == "before" else policy


def differences(runs: Sequence[Run]) -> list[str]:
    """The summary keys and options, except seeds, in which runs differ; "steps" if one stopped early."""
    found = [key for key in _COMPARED if _differs([run.summary[key] for run in runs])]
    found += ["steps"] * _differs([run.steps for run in runs])
    configs = [run.summary["config"] for run in runs]
    options = sorted({option for config in configs for option in config} - _OF_ONE_REPETITION - {*found})
    return found + [option for option in options if _differs([config.get(option) for config in configs])]


@dataclass(frozen=True)
class Family:
    """Runs that repeat each other with other seeds; ``label`` distinguishes it from the report's other families."""

    label: str
    runs: tuple[Run, ...]


def families(runs: Sequence[Run]) -> list[Family]:
    """Group runs that differ only in their seed, in the order of their first runs.

    A label names the differences of the family. If there are more than three, or if every family has one run, it is the
    name of the first run.
    """
    grouped: list[list[Run]] = []
    for run in runs:
        family = next((known for known in grouped if not differences([known[0], run])), None)
        if family is None:
            grouped.append([run])
        else:
            family.append(run)
    if len(grouped) == 1:
        return [Family("", tuple(runs))]
    labels = _family_labels(grouped)
    return [Family(label, tuple(family)) for label, family in zip(labels, grouped, strict=True)]


def _family_labels(grouped: list[list[Run]]) -> list[str]:
    firsts = [family[0] for family in grouped]
    differ = differences(firsts)
    if all(len(family) == 1 for family in grouped) or len(differ) > 3:
        return folder_names(firsts)
    described = [", ".join(f"{name}={_value(run, name)}" for name in differ) for run in firsts]
    return described if len(set(described)) == len(described) else folder_names(firsts)


def folder_names(runs: Sequence[Run]) -> list[str]:
    """The names of the runs' folders, or their paths if two have the same name."""
    names = [run.path.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]


def _value(run: Run, name: str) -> Any:
    if name == "steps":
        return run.steps
    return run.summary[name] if name in _COMPARED else run.summary["config"].get(name)


def _differs(values: list[Any]) -> bool:
    return any(value != values[0] for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and _is_number(value.get("step"))


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunNotFoundError(f"{path} does not exist; training writes it at its end") from None
    except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError as well
        raise ValueError(f"{path} cannot be read: {error}") from error
