"""The runs that committed JSON holds, by the digests of their settings, and how that JSON is written.

Machines come and go, and the single results in ``runs/`` with them. A run in a question's JSON has the digest of the
settings that it was made with, so that a later machine knows what need not be trained again. Questions share runs, so
that the JSON of all of them is searched.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from records.measures import rounded

Run = Mapping[str, Any]
LOGGED = "logged"  # folder of the measures, beside the questions' JSON
_DIGITS = 6
# Of a question's JSON: tasks, a task, variants, a variant, runs, a run, its curve. What is deeper shares a line.
_DEPTH = 8


@dataclass(frozen=True)
class Committed:
    """What the JSON in a folder holds, by digest.

    Attributes:
        runs: As `kept` makes them.
        prepared: Warm starts and baselines of tasks.
        measures: What runs logged, as ``measures.measures`` makes it.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    prepared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    measures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read(folder: Path) -> Committed:
    """What the questions' JSON in a folder holds; nothing where there is none."""
    tasks = [task for path in sorted(folder.glob("*.json")) for task in _tasks(path)]
    return Committed(
        by_digest(run for task in tasks for variant in task["variants"].values() for run in variant["runs"]),
        by_digest(task["prepared"] for task in tasks),
        every_log(folder),
    )


def every_log(folder: Path) -> dict[str, Mapping[str, Any]]:
    """What is kept of the runs' logs, by digest; a run that questions share is in the file of one of them."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / LOGGED).glob("*.json"))]
    return {digest: log for file in files for digest, log in file.items()}


def _tasks(path: Path) -> Iterator[Mapping[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(content, dict) and "question" in content:
        yield from content["tasks"].values()


def kept_logs(folder: Path, name: str) -> dict[str, Mapping[str, Any]]:
    """What a question's file has of logs, of the runs that some question's JSON still holds."""
    path = folder / LOGGED / name
    log = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    runs = read(folder).runs
    return {digest: each for digest, each in log.items() if digest in runs}


def logged_elsewhere(folder: Path, name: str) -> set[str]:
    """The digests of the runs whose measures another question's file has, so that each is kept once."""
    others = [path for path in (folder / LOGGED).glob("*.json") if path.name != name]
    return {digest for path in others for digest in json.loads(path.read_text(encoding="utf-8"))}


class ConflictingResultsError(ValueError):
    """Committed JSON has two different results of the same settings."""


def by_digest(results: Iterable[Run]) -> dict[str, Run]:
    """Results by their digests, those without one left out.

    Raises:
        ConflictingResultsError: If two results of the same settings differ. Which one a page shows would depend on the
            order of the files.
    """
    found: dict[str, Run] = {}
    for result in results:
        if "digest" in result and found.setdefault(result["digest"], result) != result:
            commits = " and ".join(str(each.get("commit")) for each in (found[result["digest"]], result))
            raise ConflictingResultsError(
                f"committed JSON has two different results of the settings {result['digest']}, of the commits "
                f"{commits}; put the newer one into every file that has the older one"
            )
    return found


def origin(run: Run) -> str:
    """The commit and the machine of a run: what its CPU seconds and memory depend on beside its settings.

    Only equal ones compare. Runs of before machines were recorded have their commit only.

    Example:
        >>> origin({"commit": "abc", "machine": {"cpus": 2}})
        '["abc", {"cpus": 2}]'
    """
    return json.dumps([run["commit"], run.get("machine")], sort_keys=True)


def kept(run: Run, digest: str) -> dict[str, Any]:
    """What a question's JSON holds of a run: all but its settings, which the digest names, and its log.

    Args:
        run: A finished run, as ``learning.run`` wrote it.
        digest: Of its settings.
    """
    return {
        "seed": run["settings"]["seed"],
        "digest": digest,
        "commit": run["commit"],
        "machine": run["machine"],
        "curve": rounded(run["curve"], _DIGITS),
        "final": rounded(run["final"], _DIGITS),
    }


def as_text(content: Any, depth: int = _DEPTH, indent: int = 0) -> str:
    """JSON with a line for each evaluation of a run: a third as long as with a line for each number.

    Args:
        content: What ``json`` can write.
        depth: Containers within so many others are written in one line.
        indent: Of the first line.
    """
    if depth == 0 or not isinstance(content, (dict, list)) or not content:
        return json.dumps(content, separators=(",", ":"))
    inner = "\n" + " " * (indent + 1)
    if isinstance(content, list):
        parts, ends = [as_text(each, depth - 1, indent + 1) for each in content], "[]"
    else:
        parts = [f"{json.dumps(key)}: {as_text(value, depth - 1, indent + 1)}" for key, value in content.items()]
        ends = "{}"
    return f"{ends[0]}{inner}{f',{inner}'.join(parts)}\n{' ' * indent}{ends[1]}"
