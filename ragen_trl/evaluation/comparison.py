"""Compares saved models, a model behind an API, the random policy and the oracle: ``python -m ragen_trl eval``.

Finished episodes and answers of an API are kept in the output folder, so the same command goes on where it was stopped,
and more episodes, samples, environments or models can be added later. Episodes that an API or an environment ended are
left out of every rate and played again by the next command. A policy that cannot play an environment gets a row that
says why.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from ragen_envs import EnvError, NoOracleError
from ragen_trl.errors import REPEAT, UserError
from ragen_trl.evaluation.evaluator import EvaluationError, held_out_starts, judged, with_differences
from ragen_trl.evaluation.folder import EpisodeFile, Starts, episodes_path, prepare
from ragen_trl.evaluation.players import EvalPlan, Player, Task, baseline, local_models, remote_player
from ragen_trl.evaluation.tables import in_one_line, markdown
from ragen_trl.policies.api import ApiError
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import provenance


def run_eval(plan: EvalPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate, and write ``summary.json``, which is returned, ``results.md`` and ``episodes/`` to the plan's folder.

    Raises `ApiError` if the API answers nothing. After Ctrl-C the message of ``KeyboardInterrupt`` says how to go on.
    """
    starts = held_out_starts(plan.run.episodes, plan.run.samples_per_start)
    api, policy = remote_player(plan) or (None, None)
    players = [baseline("random"), *local_models(plan), *([api] if api else []), baseline("oracle")]
    prepare(plan.folder, plan.run.overwrite)
    files = {
        (task.name, player.name): EpisodeFile(
            episodes_path(plan.folder, player.name, task.name, {**task.settings(), "policy": player.settings}),
            player.name,
            task.name,
        )
        for player in players
        for task in plan.tasks
    }
    total = len(starts) * len(files)
    there = total - sum(len(file.missing(starts)) for file in files.values())
    if there:
        say(f"{there} of {total} episodes are there already, in {plan.folder}")
    results: dict[str, dict[str, dict[str, Any]]] = {task.name: {} for task in plan.tasks}
    with progress_bar(total, "evaluate", "episode", initial=there) as bar:
        try:
            for player in players:
                for task in plan.tasks:
                    label = player.name if len(plan.tasks) == 1 else f"{task.name}, {player.name}"
                    bar.set_description_str(label)
                    found, words = _played(player, task, files[task.name, player.name], starts, bar)
                    results[task.name][player.name] = found
                    bar.clear()
                    say(f"{label}: {words}")
                player.close()
        except KeyboardInterrupt:
            kept = f"{bar.n} of {total} episodes are kept in {plan.folder}"
            raise KeyboardInterrupt(f"Stopped. {kept}. {REPEAT}") from None
        finally:
            if policy is not None:
                say(f"API: {policy.counts.in_words()}")
                policy.close()
    models = [player.name for player in players if player.settings]
    environments = {}
    for task in plan.tasks:
        of_task = results[task.name]
        rows = {name: files[task.name, name].of(starts) for name in of_task if "not_played" not in of_task[name]}
        for name in [name for name in models if name in rows]:
            with_differences(of_task, rows, name, "random", *(models[:1] if name != models[0] else ()))
        settings = task.settings()
        environments[task.name] = {
            "env": settings.pop("env"),
            "env_kwargs": settings.pop("env_kwargs"),
            "options": settings,
            "about": about(task.spec.env, task.args["random"], task.spec.kwargs),
            "results": of_task,
        }
    summary = {
        **provenance(),
        "episodes": plan.run.episodes,
        "samples_per_start": plan.run.samples_per_start,
        "policies": {player.name: dict(player.settings) for player in players},
        "environments": environments,
    }
    if policy is not None:
        summary["api"] = {"endpoint": policy.endpoint, **policy.counts.as_dict()}
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


def _played(player: Player, task: Task, file: EpisodeFile, starts: Starts, bar: Any) -> tuple[dict[str, Any], str]:
    """The result of a policy in an environment, and the same in words; missing episodes are played first.

    A policy that cannot play has the result ``{"not_played": reason}``.
    """
    try:
        if file.missing(starts):
            file.play(player.policy(task), task.spec, task.args_of(player.name), starts, bar)
        rows = file.of(starts)
        result = judged(rows)
    except ApiError:
        raise  # not the environment's fault: this model can play nothing
    except (UserError, EnvError) as error:  # also of an oracle that cannot see the goal, as it is on a server
        reason = f"no {player.name} policy: {error}" if isinstance(error, NoOracleError) else str(error)
        failed = {"failed": True} if isinstance(error, (EnvResetError, EvaluationError)) else {}
        return {"not_played": reason, **failed}, f"not played: {reason}"
    counted = {
        "limits": Counter(row["limit"] or "none" for row in rows if row["limit"] not in FAILED),
        "failures": Counter(row["error"] for row in rows if row["limit"] in FAILED),
        "versions": Counter(row["version"] for row in rows),
    }
    found = {**result.as_dict(), **{name: dict(counts.most_common(10)) for name, counts in counted.items()}}
    failures = [f"\n  {count} x {reason}" for reason, count in counted["failures"].most_common(3)]
    return found, result.in_words() + "".join(failures)
