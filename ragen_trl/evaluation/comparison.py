"""Compares saved models, a model behind an API, the random policy and the oracle: ``python -m ragen_trl eval``.

Finished episodes and answers of an API are kept in the output folder, so the same command goes on where it was stopped,
and more episodes, samples or models can be added later. Episodes that an API or an environment ended are left out of
every rate and played again by the next command. A policy that cannot play gets a row that says why.
"""

import gc
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ragen_envs import EnvError, NoOracleError
from ragen_trl.errors import REPEAT, DiskError, OptionError, UserError
from ragen_trl.evaluation.evaluator import held_out_starts, judged, with_differences
from ragen_trl.evaluation.folder import EpisodeFile, Starts, episodes_path
from ragen_trl.evaluation.players import EvalPlan, Player, api_player, api_policy, local_player
from ragen_trl.policies.api import ApiError
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.episode import FAILED
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import provenance


def run_eval(plan: EvalPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate, and write ``summary.json``, which is returned, and ``episodes/`` to the plan's folder.

    Raises `ApiError` if the API answers nothing. After Ctrl-C the message of ``KeyboardInterrupt`` says how to go on.
    """
    starts = held_out_starts(plan.run.episodes, plan.run.samples_per_start)
    asked = api_policy(plan) if plan.api.api_model else None
    models = [local_player(name, plan) for name in plan.run.model] + ([api_player(asked, plan)] if asked else [])
    players = [Player("random", lambda: "random"), *models, Player("oracle", lambda: "oracle")]
    if (plan.folder / "stages.json").exists():
        raise OptionError(f"{plan.folder} holds a training run; choose another --output_dir")
    files: dict[str, EpisodeFile] = {}
    for player in players:
        path = episodes_path(plan.folder, player.name, plan.spec.name, {**plan.task(), "policy": player.settings})
        files[player.name] = EpisodeFile(path, player.name, plan.spec.name)
    total = len(starts) * len(files)
    there = total - sum(len(file.missing(starts)) for file in files.values())
    if there:
        say(f"{there} of {total} episodes are there already, in {plan.folder}")
    results: dict[str, dict[str, Any]] = {}
    with progress_bar(total, "evaluate", "episode", initial=there) as bar:
        try:
            for player in players:
                bar.set_description_str(player.name)
                results[player.name], words = _played(player, plan, files[player.name], starts, bar)
                gc.collect()  # a model is freed before the next one is loaded
                bar.clear()
                say(f"{player.name}: {words}")
        except KeyboardInterrupt:
            kept = f"{bar.n} of {total} episodes are kept in {plan.folder}"
            raise KeyboardInterrupt(f"Stopped. {kept}. {REPEAT}") from None
        finally:
            if asked:
                counted = [f"{count} {name.replace('_', ' ')}" for name, count in asked.counts.items()]
                say(f"API: {', '.join(counted)}")
                asked.close()
    rows = {name: files[name].of(starts) for name, found in results.items() if "not_played" not in found}
    for name in [model.name for model in models if model.name in rows]:
        with_differences(results, rows, name, "random", models[0].name)
    summary = {
        **provenance(),
        **plan.task(),
        "environment": about(plan.spec.env, plan.args["random"], plan.spec.kwargs),
        "episodes": plan.run.episodes,
        "samples_per_start": plan.run.samples_per_start,
        "policies": {player.name: dict(player.settings) for player in players},
        "results": results,
    }
    if asked:
        summary["api"] = {"endpoint": asked.endpoint, **asked.counts}
    write_atomically(plan.folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def _played(player: Player, plan: EvalPlan, file: EpisodeFile, starts: Starts, bar: Any) -> tuple[dict[str, Any], str]:
    """The result of a policy, and the same in words; missing episodes are played first.

    A policy that cannot play has the result ``{"not_played": reason, "failed": …}``. It is no failure if an environment
    lacks a baseline.
    """
    try:
        if file.missing(starts):
            file.play(player.policy(), plan.spec, plan.args.get(player.name, plan.args["random"]), starts, bar)
        rows = file.of(starts)
        result = judged(rows)
    except (ApiError, DiskError):
        raise  # not the environment's fault: this model, or none, can play on
    except (UserError, EnvError) as error:  # also of an oracle that cannot see the goal, as it is on a server
        reason = f"no {player.name} policy: {error}" if isinstance(error, NoOracleError) else str(error)
        lacking = isinstance(error, EnvError) and not player.settings
        return {"not_played": reason, "failed": not lacking}, f"not played: {reason}"
    counted = {
        "limits": Counter(row["limit"] or "none" for row in rows if row["limit"] not in FAILED),
        "failures": Counter(row["error"] for row in rows if row["limit"] in FAILED),
    }
    found = {**asdict(result), **{name: dict(counts.most_common(10)) for name, counts in counted.items()}}
    failures = [f"\n  {count} x {reason}" for reason, count in counted["failures"].most_common(3)]
    return found, result.in_words() + "".join(failures)
