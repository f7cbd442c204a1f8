"""Compares saved models, a model behind an API, the random policy and the oracle: ``python -m ragen_trl eval``.

Finished episodes and answers of an API are kept in the output folder (``folder.py``), so the same command goes on where
it was stopped. Episodes that an API or an environment ended are left out of every rate and played again by the next
command. A policy that cannot play an environment gets a row that says why.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ragen_envs import EnvError, NoOracleError
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.evaluation.evaluator import (
    EpisodeRecord,
    EvaluationError,
    compared,
    held_out_starts,
    judged,
    play_in_batches,
)
from ragen_trl.evaluation.folder import EvalFolder, StoredEpisode, check_folder
from ragen_trl.evaluation.intervals import with_interval
from ragen_trl.evaluation.plan import EvalPlan, Task
from ragen_trl.evaluation.players import Baseline, Player, local_models, remote_player
from ragen_trl.evaluation.tables import in_one_line, markdown
from ragen_trl.policies.api_client import ApiError
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import package_version, provenance
from ragen_trl.system.terminal import REPEAT

Say = Callable[[str], None]


class EvaluationStopped(Exception):
    """Ctrl-C stopped it; the message says how to go on."""


def run_eval(plan: EvalPlan, say: Say) -> dict[str, Any]:
    """Evaluate, and write ``summary.json``, ``results.md`` and ``episodes/`` to the folder of the plan.

    Args:
        plan: Which policies play which environments.
        say: Receives lines about the results.

    Returns:
        The content of ``summary.json``.

    Raises:
        ApiError: If the API answers nothing.
        EvaluationStopped: After Ctrl-C.
        UserError: If options cannot be used, or a model cannot play an environment.
    """
    held_out_starts(plan.run.episodes)  # raises before anything is created
    check_folder(plan.folder)
    models, remote = local_models(plan, say), remote_player(plan)
    players: list[Player] = [Baseline("random"), *models, *([remote] if remote else []), Baseline("oracle")]
    try:
        for player in players:
            for task in plan.tasks:
                player.check(task)
        policies = {player.name: player.settings(_args_of(plan.tasks[0], player)) for player in players}
        settings = {"environments": {task.name: task.settings() for task in plan.tasks}, "policies": policies}
        comparison = _Comparison(plan, players, EvalFolder(plan.folder, settings, plan.run.overwrite), say)
        comparison.play()
    finally:
        if remote is not None:
            say(f"API: {remote.api.counts.in_words()}")
            remote.close()
    summary = {
        **provenance(),
        "episodes": plan.run.episodes,
        "samples_per_start": plan.run.samples_per_start,
        "policies": policies,
        "environments": {task.name: comparison.environment(task) for task in plan.tasks},
    }
    if remote is not None:
        summary["api"] = {"endpoint": remote.api.endpoint, **remote.api.counts.as_dict()}
    write_atomically(plan.folder / "results.md", markdown(summary))
    write_atomically(plan.folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def unplayed(summary: dict[str, Any]) -> list[str]:
    """A line for each environment that a policy could not play; an environment may lack baselines."""
    return [
        f"{policy} in {name}: {in_one_line(found['not_played'])}"
        for name, environment in summary["environments"].items()
        for policy, found in environment["results"].items()
        if "not_played" in found and (policy not in ("random", "oracle") or found.get("failed"))
    ]


class _Comparison:
    """Players and tasks, and the episodes of each pair.

    Attributes:
        results: By policy and environment: the fields of ``EvaluationResult`` and others, or ``{"not_played":
            reason}``, with ``"failed": True`` where the environment itself could not be played.
    """

    def __init__(self, plan: EvalPlan, players: Sequence[Player], folder: EvalFolder, say: Say) -> None:
        self._plan, self._players, self._folder, self._say = plan, players, folder, say
        self.results: dict[tuple[str, str], dict[str, Any]] = {}

    def play(self) -> None:
        """Play what is missing, one policy after the other, and say what comes out."""
        run, tasks = self._plan.run, self._plan.tasks
        each = run.episodes * run.samples_per_start
        there = sum(self._finished(player, task) for player in self._players for task in tasks)
        with self._bar(each * len(self._players) * len(tasks), there) as bar:
            for player in self._players:
                for task in tasks:
                    label = player.name if len(tasks) == 1 else f"{task.name}, {player.name}"
                    bar.set_description_str(label)
                    due = bar.n + each - self._finished(player, task)
                    found = self._missing_played(player, task, bar) or self._result(player, task)
                    self.results[player.name, task.name] = found
                    bar.total -= due - bar.n  # the episodes that could not be played
                    bar.clear()
                    for line in _lines(found, _args_of(task, player).max_completion_length):
                        self._say(f"{label}: {line}" if not line.startswith(" ") else line)
                player.close()

    def environment(self, task: Task) -> dict[str, Any]:
        """The entry of an environment in the summary.

        It has the ``differences`` of models from random play and from the first model, and of all what their success is
        ``normalised``: 0 at the random policy's, 1 at the oracle's.
        """
        results = {player.name: self.results[player.name, task.name] for player in self._players}
        played = {name: found for name, found in results.items() if "not_played" not in found}
        models = [player.name for player in self._players if not isinstance(player, Baseline)]
        for name in played.keys() & set(models):
            others = [other for other in ("random", *models[:1]) if other in played and other != name]
            pairs = {other: compared(self._records(name, task), self._records(other, task)) for other in others}
            played[name]["differences"] = {other: pair for other, pair in pairs.items() if pair is not None}
        low, high = (results[name].get("success") for name in ("random", "oracle"))
        span = high - low if low is not None and high is not None else 0.0
        for found in played.values():
            found["normalised"] = (found["success"] - low) / span if span > 0 else None
        settings = task.settings()
        return {
            "env": settings.pop("env"),
            "env_kwargs": settings.pop("env_kwargs"),
            "options": settings,
            "about": about(task.spec.env, task.args["random"], task.spec.kwargs),
            "results": results,
        }

    def _missing_played(self, player: Player, task: Task, bar: Any) -> dict[str, Any] | None:
        """Play the missing episodes of a policy in an environment; returns the result of one that cannot."""
        run, folder = self._plan.run, self._folder
        samples, done = run.samples_per_start, folder.finished(player.name, task.name)
        starts = enumerate(held_out_starts(run.episodes, samples))
        missing = [(start, place % samples) for place, start in starts if (start.seed, place % samples) not in done]
        if not missing:
            return None
        try:
            policy, args, version = player.policy(task), _args_of(task, player), package_version()
            first, began = 0, time.perf_counter()
            for played in play_in_batches(policy, task.spec, args, [start for start, _ in missing], run.side_by_side):
                seconds = (time.perf_counter() - began) / len(played)
                block = zip(missing[first : first + len(played)], played, strict=True)
                kept = [StoredEpisode(sample, seconds, EpisodeRecord.of(one), version) for (_, sample), one in block]
                folder.add(player.name, task.name, kept)
                bar.update(len(played))
                first, began = first + len(played), time.perf_counter()
        except NoOracleError as error:
            return {"not_played": f"no {player.name} policy: {error}"}
        except ApiError:
            raise  # not the environment's fault: this model can play nothing
        except EnvResetError as error:
            return {"not_played": str(error), "failed": True}
        except (UserError, EnvError) as error:  # also of an oracle that cannot see the goal, as it is on a server
            return {"not_played": str(error)}
        return None

    def _result(self, player: Player, task: Task) -> dict[str, Any]:
        rows = self._wanted(self._folder.played(player.name, task.name))
        records = [row.record for row in rows]
        try:
            found = judged(records, sum(row.seconds for row in rows)).as_dict()
        except EvaluationError as error:
            return {"not_played": str(error), "failed": True}
        limits = Counter(record.limit or "none" for record in records if record.limit not in FAILED)
        failures = Counter(record.error for record in records if record.limit in FAILED)
        versions = Counter(row.version for row in rows)
        return {
            **found,
            "limits": dict(limits.most_common()),
            "failures": dict(failures.most_common(10)),
            "versions": dict(versions.most_common()),
        }

    def _records(self, name: str, task: Task) -> list[EpisodeRecord]:
        return [row.record for row in self._wanted(self._folder.played(name, task.name))]

    def _finished(self, player: Player, task: Task) -> int:
        return len(self._wanted(self._folder.finished(player.name, task.name)))

    def _wanted(self, rows: Mapping[tuple[int, int], StoredEpisode]) -> list[StoredEpisode]:
        """In order, and without those of more seeds or samples that an earlier command has played."""
        seeds, samples = self._plan.run.episodes, self._plan.run.samples_per_start
        return [row for (seed, sample), row in sorted(rows.items()) if seed < seeds and sample < samples]

    @contextmanager
    def _bar(self, total: int, there: int) -> Iterator[Any]:
        folder = self._plan.folder
        if there:
            self._say(f"{there} of {total} episodes are there already, in {folder}")
        with progress_bar(total, "evaluate", "episode", initial=there) as bar:
            try:
                yield bar
            except KeyboardInterrupt:
                kept = f"{bar.n} of {bar.total} episodes are kept in {folder}"
                raise EvaluationStopped(f"Stopped. {kept}. {REPEAT}") from None


def _args_of(task: Task, player: Player) -> StarPOConfig:
    return task.args.get(player.name, task.args["random"])


def _lines(found: dict[str, Any], max_length: int | None) -> Iterator[str]:
    if "not_played" in found:
        yield f"not played: {found['not_played']}"
        return
    passes = "".join(f", pass@{k} {each['value']:.3f}" for k, each in found["pass_at_k"].items() if k != "1")
    n = f"n={found['n']}" + (f", {found['left_out']} left out after failures" if found["left_out"] else "")
    yield f"success {with_interval(found)} ({n}){passes}"
    for reason, count in list(found["failures"].items())[:3]:
        yield f"  {count} x {reason}"
    if len(found["versions"]) > 1:
        counts = ", ".join(f"{count} by {version}" for version, count in found["versions"].items())
        yield f"  versions of ragen-trl differ: {counts}; --overwrite true plays all by this one"
    if outgrown := found["limits"].get("context", 0):
        yield (
            f"  {outgrown} episodes ended where max_completion_length ({max_length}) or the model's context was full, "
            "which counts as failure"
        )
