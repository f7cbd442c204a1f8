"""What is kept of a run, and of all runs together: from the files that the commands wrote to JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, TypeVar

import gymnasium
from measuring.real_products import real_folder

from agents.games import GAMES, Game
from agents.runs import DATA, Run, Step, placed
from ragen_envs import Bandit, NoOracleError, difficulty
from ragen_trl.reporting.recorded import read_recording, recordings
from ragen_trl.rollout.episode import FAILED
from ragen_trl.system.provenance import provenance
from ragen_trl.trainers.checkpoints import last_whole_checkpoint

_KEPT = (
    *("n", "success", "success_low", "success_high", "score", "mean_return", "return_stderr"),
    *("format_valid", "action_valid", "reply_tokens", "turns", "faults"),
)
_OF_TRAINING = ("parameters", "seconds", "trajectories", "monitor")
_LOGGED = ("step", "loss", "success", "return", "entropy", "kl", "grad_norm", "filter/in_group_std", "step_time")
Key = TypeVar("Key")
_OF_A_TURN = ("observation", "reply", "reward", "actions", "invalid_actions")


def result_of(run: Run, root: Path, seconds: Mapping[str, float], began_with: str | None) -> dict[str, Any]:
    """The content of ``result.json`` of a run whose steps are done.

    Args:
        run: The run.
        root: Folder of all runs.
        seconds: Of each step.
        began_with: When the result of the run that it needs was made: the same settings make another warm start on
            another machine.

    Returns:
        ``evaluations`` by kind (``sampled``, ``greedy``), name and policy; of the model's episodes ``outcomes`` (and
        ``greedy_outcomes``), of the sampled ones ``by_difficulty`` and ``by_arms``; with training also ``curve``
        (success on the way), ``training`` (what an update logged, and times) and ``examples`` (trajectories before and
        after).
    """
    folder = run.folder(root)
    found = provenance()
    content: dict[str, Any] = {
        "name": run.name,
        "game": run.game,
        "stage": run.stage,
        "seed": run.seed,
        "digest": run.digest,
        "settings": run.settings,
        **({} if began_with is None else {"began_with": began_with}),
        **{name: found[name] for name in ("commit", "created", "versions", "machine")},
        "seconds": dict(seconds),
        "evaluations": {},
    }
    for step in run.steps:
        if step.command == "eval":
            content["evaluations"][step.name] = _evaluations(step, read_json(folder / step.name / "summary.json"))
            content["greedy_" * (step.name == "greedy") + "outcomes"] = outcomes(step, folder / step.name)
            if step.name == "sampled":
                content["by_difficulty"] = by_difficulty(step, folder / step.name)
                content["by_arms"] = by_arms(step, folder / step.name)
        elif step.command == "warm-start":
            content["warm_start"] = read_json(folder / step.name / "warm_start.json")
        else:
            content |= _training(folder / step.name, step)
    return content


def _evaluations(step: Step, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Results by the names that the game gives its evaluations."""
    found = {}
    for name, environment in zip(step.evaluations, summary["environments"].values(), strict=True):
        rows = environment["results"]
        (player,) = rows.keys() - {"random", "oracle"}
        policies = {"random": rows["random"], "model": rows[player], "oracle": rows["oracle"]}
        found[name] = {policy: {key: row[key] for key in _KEPT if key in row} for policy, row in policies.items()}
    return found


def outcomes(step: Step, folder: Path) -> dict[str, str]:
    """Of each evaluation the model's episodes by start seed, from 0 on: ``1`` a success, ``0``, or ``-`` for none."""
    found = {}
    for name, _, episodes in _played(step, folder):
        played = {row["seed"]: f"{row['success']:.0f}" for row in episodes if row["limit"] not in FAILED}
        found[name] = "".join(played.get(seed, "-") for seed in range(max(played, default=-1) + 1))
    return found


def by_difficulty(step: Step, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Of each evaluation with difficulties, by difficulty: the model's share of successes, and how many were played."""
    found = {}
    for name, described, episodes in _played(step, folder):
        try:
            played = grouped(described, episodes, difficulty)
        except NoOracleError:
            continue
        if played:
            shares = {hard: fmean(row["success"] for row in rows) for hard, rows in sorted(played.items())}
            found[name] = {f"{hard:g}": [share, len(played[hard])] for hard, share in shares.items()}
    return found


def by_arms(step: Step, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Of each evaluation of bandits, by their arms, the high one last: successes, choices of an arm, and episodes."""
    found = {}
    for name, described, episodes in _played(step, folder):
        if described.startswith("ragen/Bandit") and (played := grouped(described, episodes, _arms)):
            counted = ("success", "action_valid")
            found[name] = {
                arms: [*(sum(row[key] for row in rows) for key in counted), len(rows)]
                for arms, rows in sorted(played.items())
            }
    return found


def _arms(env: gymnasium.Env[Any, Any]) -> str:
    bandit = env.unwrapped
    assert isinstance(bandit, Bandit)
    return ", ".join([*sorted(set(bandit.actions) - {bandit.high_name}), bandit.high_name])


def grouped(
    described: str, episodes: Iterable[dict[str, Any]], key: Callable[[gymnasium.Env[Any, Any]], Key]
) -> dict[Key, list[dict[str, Any]]]:
    """Episodes by what is found out of their start states."""
    env_id, _, kwargs = described.partition(":")
    env = gymnasium.make(env_id, disable_env_checker=True, **json.loads(kwargs or "{}"))
    played: dict[Key, list[dict[str, Any]]] = {}
    for row in episodes:
        env.reset(seed=row["seed"])
        played.setdefault(key(env), []).append(row)
    return played


def _played(step: Step, folder: Path) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Of each evaluation its name, its environment as options describe it, and the model's episodes."""
    described = [placed(one, {DATA: str(real_folder(None))}) for one in step.options.get("env", ())]
    labels = read_json(folder / "summary.json")["environments"]
    rows: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    for path in sorted((folder / "episodes").glob("*.jsonl")):
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if row["policy"] not in ("random", "oracle"):
                rows[row["env"]].append(row)
    yield from zip(step.evaluations, described, rows.values(), strict=True)


def _training(folder: Path, step: Step) -> dict[str, Any]:
    summary, history = read_json(folder / "summary.json"), read_json(folder / "history.json")
    config = summary["config"]
    memory = {"memory": read_json(folder / "memory.json")} if step.command == "memory" else {}
    return {
        "curve": curve(summary, history),
        "training": {**{name: summary[name] for name in _OF_TRAINING if name in summary}, "bf16": config["bf16"]},
        "updates": [_update(row, config["think"]) for row in history if "loss" in row],
        "examples": examples(folder),
        **memory,
    }


def so_far(folder: Path) -> dict[str, Any]:
    """What a training run has logged, finished or stopped, in its folder.

    Returns:
        ``updates``; ``finished``; mean ``seconds`` of an update and of a rollout; ``success_in_training`` a rollout;
        ``curve`` on the way; ``ends``: random play, the oracle, and the model before and after training.
    """
    checkpoint = last_whole_checkpoint(folder) if folder.is_dir() else None
    rows = [] if checkpoint is None else read_json(checkpoint / "trainer_state.json")["log_history"]
    if (folder / "history.json").exists():
        rows = read_json(folder / "history.json")
    steps = [row for row in rows if "rollout/seconds" in row]
    ends = read_json(folder / "stages.json")["values"] if (folder / "stages.json").exists() else {}
    seconds = (("step", "step_time"), ("rollout", "rollout/seconds"))
    return {
        "updates": _last_step(rows),
        "finished": (folder / "summary.json").exists(),
        "seconds": {name: fmean(row[key] for row in rows if key in row) if steps else None for name, key in seconds},
        "success_in_training": [{"step": row["step"], "success": row["success"]} for row in steps],
        "curve": [{"step": row["step"], "success": row["eval_success"]} for row in rows if "eval_success" in row],
        "ends": {name: ends[name] for name in ("random", "oracle", "before", "trained") if name in ends},
    }


def _last_step(history: Sequence[Mapping[str, Any]]) -> int:
    return max((int(row["step"]) for row in history if "step" in row), default=0)


def stopped(runs: Iterable[Run], root: Path) -> dict[str, dict[str, Any]]:
    """What runs have so far that made updates here and have no result yet, by their names."""
    found = {}
    for run in runs:
        folders = [run.folder(root) / step.name for step in run.steps if step.command == "train"]
        for folder in folders if not (run.folder(root) / "result.json").exists() else ():
            told = so_far(folder)
            if told["success_in_training"]:
                last = [each["success"] for each in told["success_in_training"]]
                kept = ("n", "success", "success_low", "success_high")
                ends = {name: {key: end[key] for key in kept} for name, end in told["ends"].items()}
                about = {"updates": told["updates"], "seconds": told["seconds"], "ends": ends}
                found[run.name] = {"digest": run.digest, **about, "success_in_training": last}
    return found


def curve(summary: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Success on the evaluations on the way, against updates and sampled trajectories."""
    ends = summary["results"]
    steps = _last_step(history)
    total = summary["trajectories"]
    each = total["sampled"] / steps if steps else 0.0
    rows = [{"step": 0, "success": ends["before"]["success"]}]
    rows += [{"step": int(row["step"]), "success": row["eval_success"]} for row in history if "eval_success" in row]
    if rows[-1]["step"] < steps:
        rows.append({"step": steps, "success": ends["trained"]["success"]})
    reference = total.get("reference", 0)
    played = [round(each * row["step"]) + (reference if row["step"] else 0) for row in rows]
    return [
        {**row, "trajectories": count, "reference_trajectories": reference if count else 0}
        for row, count in zip(rows, played, strict=True)
    ]


def _update(row: Mapping[str, Any], think: bool) -> dict[str, float]:
    """What an update logged; measures of replies only where there are thoughts among them."""
    kept = {name: row[name] for name in _LOGGED if name in row}
    measures = {name: row[name] for name in row if think and name.startswith("collapse/")}
    return {name: float(f"{value:.5g}") for name, value in {**kept, **measures}.items()}


def examples(folder: Path, count: int = 2) -> dict[str, list[dict[str, Any]]]:
    """The first trajectories of the first and of the last recorded rollout, as text: nobody has chosen them."""
    paths = recordings(folder)
    if not paths:
        return {}
    return {name: _texts(path, count) for name, path in (("before", paths[0]), ("after", paths[-1]))}


def _texts(path: Path, count: int) -> list[dict[str, Any]]:
    recording = read_recording(path).content
    texts, shown = recording["texts"], []
    for trajectory in recording["trajectories"][:: recording["group_size"]][:count]:
        turns = [{key: turn[key] for key in _OF_A_TURN if key in turn} for turn in trajectory["turns"]]
        for turn in turns:
            turn |= {key: texts[turn[key]] for key in ("observation", "reply")}
        head = {key: trajectory[key] for key in ("env", "seed", "success", "return", "end") if key in trajectory}
        shown.append({**head, "step": recording["step"], "turns": turns})
    return shown


def collect(
    runs: Iterable[Run],
    found: Mapping[str, Mapping[str, Any]],
    command: str,
    model: str,
    games: Mapping[str, Game] = GAMES,
    script: str = "pretrained",
    begun: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    products: Mapping[str, Mapping[str, list[int]]] = MappingProxyType({}),
) -> dict[str, Any]:
    """What the tables are made of.

    Args:
        runs: All of them, in the order of the tables.
        found: What `known` returns.
        command: As the user wrote it.
        model: Its name.
        games: What they play.
        script: Name of the JSON, after which pictures are called, too.
        begun: What `stopped` returns.
        products: What `products_asked_for` returns.

    Returns:
        ``runs``: results of the finished runs; ``unfinished``: names of the others, with their expected minutes;
        ``stopped``: what those of them have that have begun.
    """
    every = list(runs)
    return {
        **provenance(),
        "command": command,
        "script": script,
        "model": model,
        "games": {
            name: {"env": game.env, "env_kwargs": game.env_kwargs, "play": game.play, "seeds": game.seeds}
            | ({"products": products[name]} if name in products else {})
            for name, game in games.items()
            if any(run.game == name for run in every)
        },
        "runs": dict(found),
        "unfinished": {run.name: run.minutes for run in every if run.name not in found},
        "stopped": {run.name: begun[run.name] for run in every if run.name in begun and run.name not in found},
    }


def beginnings(content: Mapping[str, Any], run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results, in a run's own game, of the model that it began with.

    Args:
        content: As `collect` makes it.
        run: One of its results.

    Returns:
        That of the run that made the model; of another game's warm start the one that plays it here.
    """
    if (began := run.get("began_with")) is None:
        return []
    here = [each for each in content["runs"].values() if each["game"] == run["game"]]
    played = [each for each in here if each["stage"] == "warm_start" and each.get("began_with") == began]
    return [each for each in here if each["created"] == began] or played


def known(runs: Iterable[Run], results: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Results by the names of the runs whose settings they have now, with these names in them.

    Of several with the same settings the last one counts, and of one that played more episodes later on, these. Of a
    warm start all do, since runs began with each of them: one that was made again on another machine plays a little
    differently, and is ``GAME/warm_start (2)``.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for result in sorted(results, key=_played_in_all):
        found.setdefault(result.get("digest", ""), {})[result["created"]] = result
    named = {}
    for run in runs:
        made = [result for _, result in sorted(found.get(run.digest, {}).items())]
        for number, result in enumerate(made if run.stage == "warm_start" else made[-1:], start=1):
            name = f"{run.name} ({number})" if number > 1 else run.name
            named[name] = {**result, "name": name, "game": run.game, "stage": run.stage, "seed": run.seed}
    return named


def _played_in_all(result: Mapping[str, Any]) -> int:
    """Episodes of the model in all evaluations."""
    evaluations = result.get("evaluations", {}).values()
    return sum(found["model"]["n"] for by_name in evaluations for found in by_name.values())


def read_json(path: Path) -> Any:
    """The content of a file that a command wrote."""
    return json.loads(path.read_text(encoding="utf-8"))
