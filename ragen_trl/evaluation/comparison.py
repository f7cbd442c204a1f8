"""Compares saved models, a model behind an API, the random policy and the oracle: ``python -m ragen_trl eval``.

Finished episodes and answers of an API are kept in the output folder, so the same command goes on where it was stopped,
and more episodes, samples, environments or models can be added later. Episodes that an API or an environment ended are
left out of every rate and played again by the next command. A policy that cannot play an environment gets a row that
says why.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from ragen_envs import EnvError, NoOracleError
from ragen_trl.errors import UserError
from ragen_trl.evaluation.evaluator import (
    EpisodeRecord,
    EvaluationError,
    EvaluationResult,
    compared,
    held_out_starts,
    judged,
    play_in_batches,
)
from ragen_trl.evaluation.folder import EpisodeFile, prepare
from ragen_trl.evaluation.plan import EvalPlan, Task
from ragen_trl.evaluation.players import Player, baseline, local_models, remote, remote_policy
from ragen_trl.evaluation.tables import in_one_line, markdown
from ragen_trl.policies.api_client import ApiError
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import provenance
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
    models, api = local_models(plan), remote_policy(plan)
    players = [baseline("random"), *models, *([remote(plan, api)] if api else []), baseline("oracle")]
    prepare(plan.folder, plan.run.overwrite)
    try:
        environments = _Comparison(plan, players, say).play()
    finally:
        if api is not None:
            say(f"API: {api.counts.in_words()}")
            api.close()
    summary = {
        **provenance(),
        "episodes": plan.run.episodes,
        "samples_per_start": plan.run.samples_per_start,
        "policies": {player.name: dict(player.settings) for player in players},
        "environments": environments,
    }
    if api is not None:
        summary["api"] = {"endpoint": api.endpoint, **api.counts.as_dict()}
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
    """Players and tasks, and the episodes of each pair. Whoever cannot play gets ``{"not_played": reason}``."""

    def __init__(self, plan: EvalPlan, players: Sequence[Player], say: Say) -> None:
        self._plan, self._players, self._say = plan, players, say
        samples = plan.run.samples_per_start
        self._starts = {  # by seed and sample, in the order in which they are played
            (start.seed, place % samples): start
            for place, start in enumerate(held_out_starts(plan.run.episodes, samples))
        }
        self._files = {
            (player.name, task.name): EpisodeFile(
                plan.folder, player.name, task.name, {**task.settings(), "policy": player.settings}
            )
            for player in players
            for task in plan.tasks
        }

    def play(self) -> dict[str, Any]:
        """Play what is missing, one policy after the other, say what comes out, and describe all environments."""
        folder, tasks = self._plan.folder, self._plan.tasks
        results: dict[str, dict[str, Any]] = {task.name: {} for task in tasks}
        total = len(self._starts) * len(self._files)
        there = total - sum(len(self._missing(file)) for file in self._files.values())
        if there:
            self._say(f"{there} of {total} episodes are there already, in {folder}")
        with progress_bar(total, "evaluate", "episode", initial=there) as bar:
            try:
                for player in self._players:
                    for task in tasks:
                        label = player.name if len(tasks) == 1 else f"{task.name}, {player.name}"
                        bar.set_description_str(label)
                        found = self._play_missing(player, task, bar) or self._result(player.name, task.name)
                        results[task.name][player.name] = found
                        bar.clear()
                        for line in _lines(found):
                            self._say(line if line.startswith(" ") else f"{label}: {line}")
                    player.close()
            except KeyboardInterrupt:
                kept = f"{bar.n} of {total} episodes are kept in {folder}"
                raise EvaluationStopped(f"Stopped. {kept}. {REPEAT}") from None
        return {task.name: self._described(task, results[task.name]) for task in tasks}

    def _missing(self, file: EpisodeFile) -> list[tuple[int, int]]:
        """Seed and sample of the episodes that are not there, or failed without the policy."""
        return [key for key in self._starts if key not in file.rows or file.rows[key].limit in FAILED]

    def _records(self, policy: str, env: str) -> list[EpisodeRecord]:
        """In order, and without further seeds or samples that an earlier command has played."""
        rows = self._files[policy, env].rows
        return [rows[key] for key in self._starts if key in rows]

    def _play_missing(self, player: Player, task: Task, bar: Any) -> dict[str, Any] | None:
        """Play the missing episodes of a policy in an environment; returns the result of one that cannot."""
        file = self._files[player.name, task.name]
        missing = self._missing(file)
        if not missing:
            return None
        try:
            policy, args, began = player.policy(task), task.args_of(player.name), time.perf_counter()
            keys, starts = iter(missing), [self._starts[key] for key in missing]
            for played in play_in_batches(policy, task.spec, args, starts, self._plan.run.side_by_side):
                seconds = (time.perf_counter() - began) / len(played)
                file.add([EpisodeRecord.of(one, next(keys)[1], seconds) for one in played])
                bar.update(len(played))
                began = time.perf_counter()
        except NoOracleError as error:
            return {"not_played": f"no {player.name} policy: {error}"}
        except ApiError:
            raise  # not the environment's fault: this model can play nothing
        except EnvResetError as error:
            return {"not_played": str(error), "failed": True}
        except (UserError, EnvError) as error:  # also of an oracle that cannot see the goal, as it is on a server
            return {"not_played": str(error)}
        return None

    def _result(self, policy: str, env: str) -> dict[str, Any]:
        records = self._records(policy, env)
        try:
            found = judged(records).as_dict()
        except EvaluationError as error:
            return {"not_played": str(error), "failed": True}
        limits = Counter(record.limit or "none" for record in records if record.limit not in FAILED)
        failures = Counter(record.error for record in records if record.limit in FAILED)
        versions = Counter(record.version for record in records)
        counts = {"limits": limits.most_common(), "failures": failures.most_common(10), "versions": versions.items()}
        return found | {name: dict(counted) for name, counted in counts.items()}

    def _described(self, task: Task, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """The entry of an environment in the summary.

        It has the ``differences`` of models from random play and from the first model.
        """
        played = {name: found for name, found in results.items() if "not_played" not in found}
        models = [player.name for player in self._players if player.settings]
        for name in [name for name in models if name in played]:
            others = [other for other in ("random", *models[:1]) if other in played and other != name]
            ours = self._records(name, task.name)
            pairs = {other: compared(ours, self._records(other, task.name)) for other in others}
            results[name]["differences"] = {other: pair for other, pair in pairs.items() if pair is not None}
        settings = task.settings()
        return {
            "env": settings.pop("env"),
            "env_kwargs": settings.pop("env_kwargs"),
            "options": settings,
            "about": about(task.spec.env, task.args["random"], task.spec.kwargs),
            "results": results,
        }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if "not_played" in found:
        yield f"not played: {found['not_played']}"
        return
    yield EvaluationResult(**{each.name: found[each.name] for each in fields(EvaluationResult)}).in_words()
    for reason, count in list(found["failures"].items())[:3]:
        yield f"  {count} x {reason}"
