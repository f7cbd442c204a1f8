"""Ask a question: games × variants × seeds, as data in questions/NAME.yaml; the answer is one JSON and a table.

    python benchmarks/runner.py --list                                     # all questions
    python benchmarks/runner.py collapse --list                            # its runs, finished or missing
    python benchmarks/runner.py collapse                                   # goes on where it was stopped or killed
    python benchmarks/runner.py collapse --only sokoban_200/ppo_four/11    # a run; a game or GAME/VARIANT: several
    python benchmarks/runner.py collapse --smoke                           # a minute, thrown away
    python benchmarks/runner.py collapse --out /tmp/again --folder /tmp/again/runs    # everything once more

A run is a folder in ``runs/questions`` that is named after a digest of its settings, and a process of its own. Runs of
several questions that share settings are made once, and so is the warm start that all variants of a game begin with.
``results/NAME.json`` holds what a reader needs of each run; a run that is in there with its present settings counts as
finished, whichever machine made it.
"""

import argparse
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

from record import sampled
from scipy.special import stdtrit
from settings import DATA, FASTER, HERE, MODEL, NEEDED, Run, questions, read, runs_of, small

from ragen_trl.system.atomic import write_atomically

BENCHMARKS = Path(__file__).resolve().parent
QUIET = {"TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
_OF_AN_EVALUATION = ("n", "success", "success_low", "success_high", "score", "mean_return", "format_valid", "turns")


# --- doing what is missing ---


def is_done(run: Run, root: Path) -> bool:
    """Whether the run has left its result."""
    return (root / run.folder / "result.json").exists()


def in_order(wanted: Sequence[Run], root: Path) -> list[list[Run]]:
    """What is to be done for the runs, each once, in rounds: what another needs is in a round before it."""
    depth: dict[str, tuple[int, Run]] = {}

    def visit(run: Run) -> int:
        if is_done(run, root):
            return -1
        if run.folder not in depth:
            depth[run.folder] = (1 + max((visit(needed) for needed in run.needs), default=-1), run)
        return depth[run.folder][0]

    for run in wanted:
        visit(run)
    last = max((at for at, _ in depth.values()), default=-1)
    return [[run for at, run in depth.values() if at == number] for number in range(last + 1)]


def do(wanted: Sequence[Run], root: Path, options: argparse.Namespace, lock: int) -> list[str]:
    """Do what has no result in the folder; returns the names of the runs that failed.

    Every process inherits the lock, so the folder stays locked where only the runner was killed.
    """
    rounds = in_order(wanted, root)
    every = [run for each in rounds for run in each]
    for run in every:
        write_atomically(root / run.folder / "settings.json", json.dumps(run.settings, indent=1))
    if options.smoke:
        return do_at_once(every, root, options.model, lock)
    failed: list[str] = []
    began, done = time.monotonic(), 0

    def one(run: Run) -> bool:
        nonlocal done
        log, agent = root / run.folder / "log.txt", run.settings["kind"] == "agent"
        fine = all(is_done(needed, root) for needed in run.needs)
        for there, command in commands(run, root, options.model) if fine else ():
            fine = fine and (there.exists() or (process(command, log, lock, not agent) == 0 and there.exists()))
        if fine and agent:
            write_atomically(root / run.folder / "result.json", json.dumps(agent_result(run, root), indent=1))
        done += 1
        left = (time.monotonic() - began) / done * (len(every) - done) / 60
        outcome = "done" if fine else f"failed, see {log}"
        print(f"[{done}/{len(every)}] {run.name}: {outcome}; about {left:.0f} min left", flush=True)
        return fine

    for each in rounds:
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                outcomes = list(pool.map(one, each))
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise
        failed += [run.name for run, fine in zip(each, outcomes, strict=True) if not fine]
    return failed


def do_at_once(every: Sequence[Run], root: Path, model: str, lock: int) -> list[str]:
    """The runs of a smoke test in one process, since starting it takes longer than such a run."""
    log = root / "log.txt"
    print(f"{len(every)} small runs in one process, a minute or more; what it says goes to {log}", flush=True)
    if every[0].settings["kind"] == "agent":
        said = json.dumps([command[3:] for run in every for _, command in commands(run, root, model)])
        text = "import json, sys; from ragen_trl.cli.main import main; "
        command = [sys.executable, "-c", text + "sys.exit(any(map(main, json.loads(sys.argv[1]))))", said]
    else:
        command = [sys.executable, str(BENCHMARKS / "training.py"), *(str(root / run.folder) for run in every)]
    if process(command, log, lock, one_thread=True):
        print(log.read_text(encoding="utf-8")[-5000:], file=sys.stderr)
        return ["the smoke run"]
    for run in every:
        if run.settings["kind"] == "agent":
            write_atomically(root / run.folder / "result.json", json.dumps(agent_result(run, root), indent=1))
    return []


def commands(run: Run, root: Path, model: str) -> list[tuple[Path, list[str]]]:
    """What does a run: each command with the file that is there once it is done.

    The package's commands go on where they were killed, so they are simply given again.
    """
    folder = root / run.folder
    if run.settings["kind"] != "agent":
        return [(folder / "result.json", [sys.executable, str(BENCHMARKS / "training.py"), str(folder)])]
    needed = str(root / run.needs[0].folder) if run.needs else ""
    places = {MODEL: model, HERE: str(folder), NEEDED: needed, DATA: os.environ.get("RAGEN_WEBSHOP_DATA", "")}
    steps: list[tuple[str, dict[str, Any], str]] = []
    if "learn" in run.settings:
        command, options = run.settings["learn"]
        steps.append((command, options, {"train": "train/summary.json"}.get(command, "model/warm_start.json")))
    evaluate = run.settings["evaluate"]
    for name, played in zip(run.settings["names"], evaluate["env"], strict=True):
        env, _, kwargs = played.partition(":")
        place = {"env": env, "env_kwargs": kwargs, "output_dir": f"{evaluate['output_dir']}/{name}"}
        steps.append(("eval", {**evaluate, **place}, f"evaluation/{name}/summary.json"))
    found = []
    for command, options, writes in steps:
        words = [sys.executable, "-m", "ragen_trl", command]
        for name, value in options.items():
            if value in ({}, None):
                continue
            if value == FASTER:
                value = is_faster_in_bf16(folder)
            words.append(f"--{name}")
            for each in value if isinstance(value, list) else [value]:
                text = each if isinstance(each, str) else json.dumps(each)
                for place, there in places.items():
                    text = text.replace(place, there)
                words.append(text)
        found.append((folder / writes, words))
    return found


def is_faster_in_bf16(folder: Path) -> bool:
    """Whether bfloat16 is the faster precision here, as on a GPU and on some CPUs; measured once a run."""
    path = folder / "bf16.json"
    if not path.exists():
        import torch

        seconds = []
        for precision in (torch.float32, torch.bfloat16):
            rows, weights = torch.ones(512, 576, dtype=precision), torch.ones(1536, 576, dtype=precision)
            seconds.append(min(timeit.repeat("rows @ weights.T", globals=locals(), number=1, repeat=4)))
        write_atomically(path, json.dumps(torch.accelerator.is_available() or seconds[0] >= 2 * seconds[1]))
    return bool(json.loads(path.read_text(encoding="utf-8")))


def process(command: Sequence[str], log: Path, lock: int, one_thread: bool) -> int:
    """Do a command, its output added to the log; returns the exit status."""
    paths = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, **QUIET, "PYTHONPATH": paths}
    if one_thread:  # the small model gains nothing from a second one, and runs beside it do not change its times
        surroundings |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=surroundings, pass_fds=[lock]
        )
    return done.returncode


# --- what came out ---


def collect(question: Mapping[str, Any], runs: Sequence[Run], root: Path, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the question's JSON: its finished runs, those of the earlier JSON first."""
    from ragen_trl.system.provenance import provenance  # imports torch, which --list does without

    known: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for name, game in earlier.get("games", {}).items():
        for run in each_run(game):  # of a pretrained model's warm start there may be two, each with runs of its own
            known.setdefault((name, run["digest"]), []).append(run)
    games: dict[str, Any] = {}
    for run in sorted(runs, key=lambda run: list(question["games"]).index(run.game)):
        found = known.get((run.game, run.digest)) or kept(run, root, question)
        if not found:
            continue
        game = question["games"][run.game]
        into = games.setdefault(run.game, {"env": game["env"], "env_kwargs": game.get("env_kwargs", {})})
        if "level" in game:
            into["level"] = game["level"]
        if "baselines" not in into:  # those that the run was compared with
            committed = (run.game, run.digest) in known
            into["baselines"] = earlier["games"][run.game]["baselines"] if committed else baselines_of(run, root)
        label = question.get("variants", {}).get(run.variant, {}).get("label", run.variant)
        into.setdefault("variants", {}).setdefault(run.variant, {"label": label, "runs": []})["runs"] += found
    every = [run for game in games.values() for run in each_run(game)]
    content = {
        **provenance(),
        "command": f"python benchmarks/runner.py {question['name']}",
        "question": question["name"],
        "title": question["title"],
        "seeds": sorted({run["seed"] for run in every if run["seed"] is not None}),
        "commits": sorted({run["commit"] for run in every}),
        "cpu_minutes": round(sum(run.get("spent", {}).get("cpu_seconds", 0.0) for run in every) / 60, 1),
        "games": games,
    }
    return {**content, "table": table(question, content)}


def each_run(game: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All runs in a game of a question's JSON."""
    return [run for variant in game["variants"].values() for run in variant["runs"]]


def kept(run: Run, root: Path, question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the JSON holds of a run if it is finished; nothing if not."""
    path = root / run.folder / "result.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"refused": "nothing is there"}
    if "refused" in found:
        return []
    content = {"seed": run.seed, "digest": run.digest, **{key: found[key] for key in ("commit", "machine")}}
    if "curve" in found:
        columns = ("step", "trajectories", "success", *question.get("columns", ()))
        content["curve"] = {name: found["curve"][name] for name in columns if name in found["curve"]}
    return [content | {key: found[key] for key in ("end", "spent", "signal") if found.get(key)}]


def agent_result(run: Run, root: Path) -> dict[str, Any]:
    """The result of a run of the package's commands, from the files that they wrote."""
    folder, load = root / run.folder, lambda path: json.loads(path.read_text(encoding="utf-8"))
    end: dict[str, Any] = {}
    baselines: dict[str, Any] = {}
    for name in run.settings["names"]:
        summary = load(folder / "evaluation" / name / "summary.json")
        for player, row in summary["results"].items():
            row = {key: row[key] for key in _OF_AN_EVALUATION if row.get(key) is not None}
            if player in ("random", "oracle"):
                baselines.setdefault(name, {})[player] = row
            else:
                end[name] = row
    origin = {name: summary[name] for name in ("commit", "created", "versions", "machine")}
    content = {**origin, "end": end, "baselines": baselines}
    if run.settings.get("learn", ("",))[0] == "train":
        trained, history = load(folder / "train" / "summary.json"), load(folder / "train" / "history.json")
        content["curve"] = agent_curve(trained, history)
        content["spent"] = {"seconds": trained.get("seconds")}
    return content


def agent_curve(summary: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Success on the evaluations on the way, against updates and sampled trajectories."""
    ends, key = summary["results"], "astar/reference_episodes"
    reference = round([0, *(row[key] for row in history if key in row)][-1])
    steps = max((int(row["step"]) for row in history if "step" in row), default=0)
    rows = [(0, ends["before"]["success"])]
    rows += [(int(row["step"]), row["eval_success"]) for row in history if "eval_success" in row]
    if rows[-1][0] < steps:
        rows.append((steps, ends["trained"]["success"]))
    each = sampled(summary["config"], history) / max(steps, 1)
    return {
        "step": [step for step, _ in rows],
        "trajectories": [round(each * step) + (reference if step else 0) for step, _ in rows],
        "success": [success for _, success in rows],
    }


def baselines_of(run: Run, root: Path) -> dict[str, Any]:
    """Random play and the oracle by evaluation, and the small model's warm start."""
    kind = run.settings["kind"]
    holder = run.needs[-1] if kind == "run" else run
    key = "baselines" if kind == "agent" else "evaluations"
    found: dict[str, Any] = json.loads((root / holder.folder / "result.json").read_text(encoding="utf-8"))[key]
    if run.needs and "seed" in run.needs[0].settings:  # a warm start for each seed is no baseline of all
        found = {name: {key: each[key] for key in ("random", "oracle")} for name, each in found.items()}
    return found


# --- intervals ---


@dataclass(frozen=True)
class Interval:
    """A mean of a few seeds with its 95 % interval; ``low`` and ``high`` are the mean's own if there is one seed."""

    mean: float
    low: float
    high: float
    n: int


def t_interval(values: Sequence[float], least: float = 0.0) -> Interval:
    """The mean of a few runs, with Student's t interval.

    Args:
        values: One a seed.
        least: The interval reaches at least so far on both sides: three runs may end alike by chance, and it should
            not be shorter than what the evaluations alone leave open.

    Example:
        >>> found = t_interval([1.0, 2.0, 3.0])
        >>> round(found.low, 3), round(found.high, 3)
        (-0.484, 4.484)
    """
    mean, n = fmean(values), len(values)
    arm = max(stdtrit(n - 1, 0.975) * stdev(values) / math.sqrt(n) if n > 1 else 0.0, least)
    return Interval(mean, mean - arm, mean + arm, n)


def evaluation_arm(rates: Sequence[Sequence[float]], episodes: int) -> float:
    """What the evaluations alone leave open of a mean, or of a mean difference, of rates: 1.96 standard errors.

    Rates of 0 and 1 have no spread, so two successes and two failures are added (Agresti and Coull 1998).

    Args:
        rates: A row a seed: the rate, or the two rates whose difference is meant.
        episodes: Played for each rate.
    """
    shares = [(rate * episodes + 2) / (episodes + 4) for row in rates for rate in row]
    variance = math.fsum(share * (1 - share) / (episodes + 4) for share in shares)
    return NormalDist().inv_cdf(0.975) * math.sqrt(variance) / len(rates)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], episodes: int) -> Interval | None:
    """How much higher success is, paired by seed; None without two seeds that both have."""
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return None
    arm = evaluation_arm([(ours[seed], theirs[seed]) for seed in seeds], episodes)
    return t_interval([ours[seed] - theirs[seed] for seed in seeds], arm)


# --- the table ---


def lasting_best(curve: Mapping[str, Sequence[float]]) -> float:
    """The best success that lasted: of means over three neighbouring evaluations, the first and the last evaluation."""
    success = curve["success"]
    around = [fmean(success[at - 1 : at + 2]) for at in range(1, len(success) - 1)]
    return max(*around, success[0], success[-1])


def share_kept(run: Mapping[str, Any], game: Mapping[str, Any]) -> float | None:
    """The success at the last evaluation as a share of the best that lasted: a collapse is a small one."""
    best = lasting_best(run["curve"])
    return run["curve"]["success"][-1] / best if best else None


def seconds_to_level(run: Mapping[str, Any], game: Mapping[str, Any]) -> float | None:
    """CPU seconds of training up to the first evaluation with the game's ``level`` of success; None if never."""
    reached = (at for at, success in enumerate(run["curve"]["success"]) if success >= game["level"])
    at = next(reached, None)
    return None if at is None else run["curve"]["cpu_seconds"][at]


def gradient_ratio(kind: str, run: Mapping[str, Any]) -> float | None:
    """A gradient's norm in the quarter of the groups with the most spread over that in the one with the least."""
    found = run.get("signal", {}).get(kind)
    return found[-1] / max(found[0], 1e-12) if found else None


def rank_correlation(name: str, run: Mapping[str, Any]) -> float | None:
    """Spearman's correlation of a column with success on held-out start states; None where it has too few values."""
    pairs = [
        (value, success)
        for value, success in zip(run["curve"].get(name, ()), run["curve"]["success"], strict=False)
        if value is not None
    ]
    if len(pairs) < 4 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    ranks = []
    for side in zip(*pairs, strict=True):
        ordered = sorted(side)
        ranks.append([ordered.index(value) + (ordered.count(value) + 1) / 2 for value in side])
    means = [fmean(side) for side in ranks]
    over = math.fsum((first - means[0]) * (second - means[1]) for first, second in zip(*ranks, strict=True))
    squares = [math.fsum((value - mean) ** 2 for value in side) for side, mean in zip(ranks, means, strict=True)]
    return over / math.sqrt(squares[0] * squares[1])


def information(run: Mapping[str, Any], game: Mapping[str, Any]) -> float | None:
    """How success goes with the mutual information between messages and thoughts."""
    return rank_correlation("mutual_information", run)


# What a question may ask for beside success (``measures:``): heading, and the number of a run and its game.
MEASURES = {
    "best": ("best success", lambda run, game: max(run["curve"]["success"])),
    "share_kept": ("share of the best kept", share_kept),
    "kl": ("KL to the start", lambda run, game: run["spent"]["kl"]),
    "cpu_seconds": ("CPU s", lambda run, game: run["spent"]["cpu_seconds"]),
    "peak_mib": ("peak MiB", lambda run, game: run["spent"]["peak_mib"]),
    "seconds_to_level": ("CPU s to a success of the game's level", seconds_to_level),
    "reply_length": ("tokens a reply", lambda run, game: next(iter(run["end"].values())).get("tokens_per_turn")),
    "task_gradient": ("task gradient, most to least spread", lambda run, game: gradient_ratio("task", run)),
    "entropy_gradient": ("entropy gradient, likewise", lambda run, game: gradient_ratio("entropy", run)),
    "information": ("correlation of information with success", information),
}


def table(question: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Success at the end by game, evaluation and variant: the mean over the seeds, and how much higher than another's.

    A game is compared with the one that it names (``against:``), variant by variant. Else a variant is compared with
    the one that it names, or with the game's first. Runs without a seed have a row each.
    """
    measures = question.get("measures", ())
    rows = []
    for name, game in content["games"].items():
        for evaluation, baselines in game["baselines"].items():
            starts = game["variants"].get("warm_start", {"runs": []})["runs"]  # of a pretrained model
            levels = {**({"warm_start": starts[0]["end"][evaluation]} if starts else {}), **baselines}
            players = ("random", "warm_start", "oracle")
            known = [f"{levels[key]['success']:.2f}" if key in levels else "–" for key in players]
            for variant, found in game["variants"].items():
                if variant.endswith("_greedy"):  # a column of the variant that is played so
                    continue
                greedy = game["variants"].get(f"{variant}_greedy", {"runs": []})["runs"]
                theirs, said = compared_with(question, content, name, variant)
                seeds = found["runs"][0]["seed"] is not None
                for runs in [found["runs"]] if seeds else [[run] for run in found["runs"]]:
                    ends = [run["end"][evaluation] for run in runs]
                    ours, others = rates(runs, evaluation), rates(theirs, evaluation)
                    less = None if theirs is found["runs"] else paired(ours, others, ends[0]["n"])
                    measured = [mean_of(MEASURES[each][1](run, game) for run in runs) for each in measures]
                    shown = measured if evaluation == next(iter(game["baselines"])) else [""] * len(measured)
                    rows.append(
                        [
                            name if len(game["baselines"]) == 1 else f"{name}: {evaluation}",
                            ", ".join(known),
                            found["label"],
                            with_interval(mean_success(ends)),
                            f"{ends[0]['n']}" if len(runs) == 1 else f"{len(runs)} × {ends[0]['n']}",
                            f"{fmean(run['end'][evaluation]['success'] for run in greedy):.2f}" if greedy else "",
                            "" if less is None else f"{with_interval(less, '+')} to {said}",
                            *shown,
                        ]
                    )
    headings = ["game", "random, warm start, oracle", "variant", "success at the end", "n", "greedily", "difference"]
    headings += [MEASURES[measure][0] for measure in measures]
    filled = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    return {
        "columns": [headings[at] for at in filled],
        "rows": [[row[at] for at in filled] for row in rows],
        "note": "95 % intervals: of a mean over seeds Student's t, differences paired by seed, neither shorter than "
        "the evaluations alone leave open; of a single run Wilson's. n: seeds × held-out episodes.",
    }


def compared_with(
    question: Mapping[str, Any], content: Mapping[str, Any], name: str, variant: str
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """The runs that a variant in a game is compared with, and what to call them."""
    if "against" in question["games"][name]:
        other = question["games"][name]["against"]
        there = content["games"].get(other, {"variants": {}})["variants"]
        return there.get(variant, {"runs": []})["runs"], other
    there, known = content["games"][name]["variants"], question.get("variants", {})
    asked = {each: known.get(each, {}).get("against", "").split(" or ") for each in there}
    named = {each: [other for other in others if other in there] for each, others in asked.items()}
    if not named[variant] and [variant] in named.values():  # the others are compared with it
        return there[variant]["runs"], variant
    other = next(iter([*named[variant], *there]))
    return there[other]["runs"], other


def rates(runs: Sequence[Mapping[str, Any]], evaluation: str) -> dict[int, float]:
    """Success at the end by seed."""
    return {run["seed"]: run["end"][evaluation]["success"] for run in runs if evaluation in run["end"]}


def mean_success(ends: Sequence[Mapping[str, Any]]) -> Interval:
    """Of several seeds t, of one the interval of its evaluation."""
    shares = [end["success"] for end in ends]
    if len(ends) == 1:
        return Interval(shares[0], ends[0]["success_low"], ends[0]["success_high"], 1)
    found = t_interval(shares, evaluation_arm([[share] for share in shares], ends[0]["n"]))
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def with_interval(found: Interval, sign: str = "") -> str:
    """``0.52 [0.48, 0.56]``."""
    return f"{found.mean:{sign}.2f} [{found.low:{sign}.2f}, {found.high:{sign}.2f}]"


def mean_of(values: Any) -> str:
    """A measure's mean over the seeds that have it, with three significant digits, and how many of the seeds do."""
    every = list(values)
    found = [value for value in every if value is not None]
    if not found:
        return "–"
    return f"{fmean(found):.3g}" + (f" ({len(found)} of {len(every)})" if len(found) < len(every) else "")


def in_columns(shown: Mapping[str, Any]) -> str:
    """The table as text."""
    rows = [shown["columns"], *shown["rows"]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, shown["note"]])


# --- the command ---


def main(command_line: Sequence[str] | None = None) -> int:
    """List, or run what is missing and write what is there; 1 if a run failed, 2 if the options are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="*", help="names of questions; with --list or --smoke none stands for all")
    parser.add_argument("--list", action="store_true", help="say what is there and what is missing, and do nothing")
    parser.add_argument("--only", nargs="+", metavar="GAME/VARIANT/SEED", help="these; GAME or GAME/VARIANT: several")
    parser.add_argument("--smoke", action="store_true", help="a minute each, thrown away")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results", help="folder of the JSON")
    parser.add_argument("--folder", type=Path, default=Path("runs") / "questions", help="folder of the runs")
    parser.add_argument("--model", help="another pretrained model than the question's")
    options = parser.parse_args(command_line)
    names = options.question or (questions() if options.list or options.smoke else [])
    if not names or set(names) - set(questions()):
        parser.error(f"name some of these questions: {', '.join(questions())}")
    if options.list and not options.question:
        print("\n".join(f"{name:21} {read(name)['title']}" for name in names))
        return 0
    try:
        return max(ask(read(name), options) if not options.smoke else smoke(read(name), options) for name in names)
    except KeyboardInterrupt:
        print("Stopped. What is finished is kept; the same command does the rest.", file=sys.stderr)
        return 130


def smoke(question: dict[str, Any], options: argparse.Namespace) -> int:
    """Ask a question with the smallest sizes, in a folder that is thrown away."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        there = {"out": Path(scratch), "folder": Path(scratch) / "runs", "model": str(Path(scratch) / "tiny")}
        if question.get("kind") == "pretrained":
            tiny_model(Path(scratch) / "tiny")
        status = ask(small(question), argparse.Namespace(**{**vars(options), **there}))
    print(f"{question['name']}: {'failed' if status else 'done'} after {time.monotonic() - began:.0f} s", flush=True)
    return status


def tiny_model(folder: Path) -> None:
    """A random Llama of two layers with the tokenizer of the embedded model, saved as any model is."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    from ragen_trl.policies.tiny_model import build_tiny_tokenizer

    tokenizer = build_tiny_tokenizer()
    set_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **ends)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def ask(question: Mapping[str, Any], options: argparse.Namespace) -> int:
    """List or do the runs that are asked for, then write and print what is there."""
    if options.model and question.get("kind") == "pretrained":
        question = {**question, "model": options.model}
    runs, path, root = runs_of(question), options.out / f"{question['name']}.json", options.folder.resolve()
    wanted = [run for run in runs if not options.only or any(fits(run, name) for name in options.only)]
    if not wanted:
        print(f"no run fits {' '.join(options.only)}; --list names all of them", file=sys.stderr)
        return 2
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = {run["digest"] for game in earlier.get("games", {}).values() for run in each_run(game)}
    missing = [run for run in wanted if run.digest not in known and not is_done(run, root)]
    if options.list:
        for run in wanted:
            print(f"runner.py {question['name']} --only '{run.name}'  # {'missing' if run in missing else 'finished'}")
        print(f"{question['name']}: {len(missing)} of {len(wanted)} runs are missing")
        return 0
    if not os.environ.get("RAGEN_WEBSHOP_DATA"):
        without = [run for run in missing if DATA not in json.dumps(run.settings)]
        if len(without) < len(missing):
            print(
                f"left out: {len(missing) - len(without)} runs with the official products, whose folder "
                "RAGEN_WEBSHOP_DATA does not name",
                file=sys.stderr,
            )
        missing = without
    if missing and str(question.get("model")).startswith("models/") and not Path(question["model"]).exists():
        print(f"{question['model']} is not there; `make smollm2` makes it, or name another --model", file=sys.stderr)
        return 2
    failed: list[str] = []
    if missing:
        root.mkdir(parents=True, exist_ok=True)
        with (root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"another process trains in {root}; wait for it, or name another --folder", file=sys.stderr)
                return 1
            options = argparse.Namespace(**{**vars(options), "model": question.get("model")})
            failed = do(missing, root, options, lock.fileno())
    content = collect(question, runs, root, earlier)
    if content["games"] != earlier.get("games") or content["table"] != earlier.get("table"):
        write_atomically(path, as_text(content))
        print(f"written: {path}")
    print(in_columns(content["table"]))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def fits(run: Run, name: str) -> bool:
    """Whether this is the run's name or the beginning of it, up to a slash."""
    return f"{run.name}/".startswith(f"{name}/")


def as_text(content: Any, depth: int = 7, indent: int = 0) -> str:
    """JSON in which what is nested deeper than runs shares a line: a third as long as with a line for each number."""
    if depth == 0 or not isinstance(content, (dict, list)) or not content:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    inner = "\n" + " " * (indent + 1)
    if isinstance(content, list):
        parts, ends = [as_text(each, depth - 1, indent + 1) for each in content], "[]"
    else:
        parts = [f"{json.dumps(key)}: {as_text(value, depth - 1, indent + 1)}" for key, value in content.items()]
        ends = "{}"
    return f"{ends[0]}{inner}{f',{inner}'.join(parts)}\n{' ' * indent}{ends[1]}"


if __name__ == "__main__":
    sys.exit(main())
