"""The command line that all scripts with runs of a pretrained model share: list, do, collect.

A script has its games and a name, after which its results are called. What a run is: ``agents/runs.py``.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from measuring.real_products import PRODUCTS, asked_for, real_folder
from records.committed import as_text

from agents.carry_out import AlreadyRunning, Execute, StepFailed, carry_out, is_finished, result_file, state
from agents.games import Game
from agents.pictures import draw
from agents.products import products_asked_for
from agents.results import collect, known, read_json, stopped
from agents.runs import Run, chosen, name_of
from ragen_trl.system.atomic import write_atomically

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MODEL = "models/SmolLM2-135M-Instruct"
_DEPTH = 4  # of the JSON: runs, a run, its parts, a part; what is deeper shares a line


@dataclass(frozen=True)
class Script:
    """What is different between scripts.

    Attributes:
        name: Of the script without its ending; results and folders of runs are called so.
        text: Its description.
        games: What is played.
        runs: All runs of a model.
        smoke_runs: A few small ones.
        paper_runs: Those of the papers' scale, for a GPU; ``None``: there are none.
        on: What its minutes are those of.
    """

    name: str
    text: str
    games: Mapping[str, Game]
    runs: Callable[[str], list[Run]]
    smoke_runs: Callable[[str], list[Run]]
    paper_runs: Callable[[str], list[Run]] | None = None
    on: str = "two cores"


def main(script: Script, command_line: Sequence[str] | None = None) -> int:
    """List, or do what was asked for, then collect; 1 if a run failed, 2 if something is wrong with the options."""
    options = parse(script, command_line)
    folder, output = folders(script, options)
    model = options.model
    if options.smoke:
        if options.folder is None and folder.exists() and not (options.keep or options.list or options.collect):
            shutil.rmtree(folder)
        model = str(tiny_model(folder / "tiny-random-Llama"))
    make = script.smoke_runs if options.smoke else script.paper_runs if options.paper else script.runs
    assert make is not None
    runs = make(model)
    try:
        wanted = chosen(runs, options.only) if options.only else runs
    except ValueError as error:
        return fail(str(error))
    name = f"{script.name}_paper" if options.paper else script.name
    if not options.smoke and options.model != MODEL:  # another model's results are not these
        name = f"{name}_{name_of(options.model).replace('/', '_')}"
    before = written_before(output / f"{name}.json")
    written = known(runs, before.get("runs", {}).values())
    if options.list:
        return say(listed(script, wanted, folder, options, written, begun_before(runs, before)))
    if not options.collect and (missing := missing_model(model)):
        return fail(missing)
    if not options.only:  # what was asked for by name is done whatever the JSON holds
        wanted = [run for run in wanted if run.name not in written]
    if not options.collect and asked_for(None) is None:
        without = [run for run in wanted if not run.plays_real_products]
        for run in (run for run in wanted if run.plays_real_products):
            where = f"there is no {PRODUCTS} in {real_folder(None)}; name its folder with RAGEN_WEBSHOP_DATA"
            print(f"left out: {run.name}; {where}", file=sys.stderr)
        if wanted and not without:
            return 2
        wanted = without
    execute = in_this_process if options.smoke else None
    failed = [] if options.collect else do_all(wanted, folder, model, execute, options.at_once)
    content = collected(script, runs, folder, output / f"{name}.json", model)
    write_atomically(output / f"{name}.json", as_text(content, _DEPTH))
    print(f"written: {output / name}.json: {len(content['runs'])} runs, {len(content['unfinished'])} unfinished")
    for path in draw(content, output, name):
        print(f"written: {path}")
    return int(bool(failed))


def parse(script: Script, command_line: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=script.text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the runs as commands, and do nothing")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="runs, games, or stages (GAME/starpo_s)")
    parser.add_argument("--collect", action="store_true", help="run nothing, write the JSON of what is finished")
    parser.add_argument("--smoke", action="store_true", help="a minute, written to runs/ only")
    parser.add_argument("--keep", action="store_true", help="with --smoke: go on where the last smoke run stopped")
    if script.paper_runs is not None:
        parser.add_argument("--paper", action="store_true", help="RAGEN's scale, for a GPU")
    parser.add_argument("--model", default=MODEL, help=f"folder or hub id (default: {MODEL}, made by make smollm2)")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at a time, for a GPU (default: 1)")
    parser.add_argument("--folder", type=Path, help=f"of the runs (default: runs/{script.name})")
    parser.add_argument("--output", type=Path, help="of the JSON and the pictures (default: benchmarks/results)")
    options = parser.parse_args(command_line)
    options.paper = getattr(options, "paper", False)
    if options.smoke and options.paper:
        parser.error("--smoke and --paper exclude each other")
    if options.at_once < 1 or (options.smoke and options.at_once > 1):
        parser.error(f"--at-once is {options.at_once}; give at least 1, and no more with --smoke: it has one process")
    return options


def folders(script: Script, options: argparse.Namespace) -> tuple[Path, Path]:
    """Where runs are, and where results go."""
    scale = "-smoke" if options.smoke else "-paper" if options.paper else ""
    folder = options.folder or Path("runs") / f"{script.name}{scale}"
    return folder, options.output or (folder if options.smoke else RESULTS)


def missing_model(model: str) -> str | None:
    """What to do if the model is not there; ``None`` if it is, or may be on the hub."""
    if (Path(model) / "config.json").exists() or Path(model).is_file():  # a GGUF file
        return None
    if model == MODEL:
        return f"{model} is not there; `make smollm2` makes it (98 MB to download), or name another with --model"
    looks_local = Path(model).is_absolute() or model.startswith((".", "runs/", "models/")) or Path(model).exists()
    return f"{model} holds no config.json; give the folder or the hub id of a causal LM" if looks_local else None


def listed(
    script: Script,
    runs: Sequence[Run],
    folder: Path,
    options: argparse.Namespace,
    written: Mapping[str, Any],
    begun: Mapping[str, Any],
) -> str:
    """Every run as a command, with its expected minutes and its state.

    Args:
        script: The script.
        runs: What is listed.
        folder: Of the runs.
        options: The command line.
        written: The results that the JSON has, by name.
        begun: What the JSON has of runs that were stopped, by name.
    """
    model = "" if options.model == MODEL else f" --model {options.model}"
    model += "" if options.folder is None else f" --folder {options.folder}"
    scale = " --paper" if options.paper else " --smoke --keep" if options.smoke else ""
    lines = []
    for run in runs:
        command = f"nice -n 19 python benchmarks/{script.name}.py{scale}{model} --only {run.name}"
        now = in_json(run, written[run.name]) if run.name in written else state(run, folder)
        if now == "not begun" and run.name in begun:
            now = f"stopped elsewhere after {begun[run.name]['updates']} updates"
        lines.append(f"{command}  # {run.minutes:.0f} min, {now}")
    missing = {run.digest: run for run in runs if run.name not in written and not is_finished(run, folder)}
    left = sum(run.minutes for run in missing.values())
    return "\n".join([*lines, f"# about {left / 60:.1f} hours in all on {script.on} for what is not finished"])


def in_json(run: Run, result: Mapping[str, Any]) -> str:
    """That a run is in the JSON, and how many episodes it has where more are asked for now."""
    wanted = max((step.options["episodes"] for step in run.steps if step.command == "eval"), default=0)
    played = [found["model"]["n"] for by_name in result.get("evaluations", {}).values() for found in by_name.values()]
    fewer = min(played, default=wanted)
    return f"in the JSON with {fewer} of {wanted} episodes" if fewer < wanted else "in the JSON"


def do_all(
    runs: Sequence[Run], folder: Path, model: str, execute: Execute | None, at_once: int = 1
) -> list[str]:
    """Carry out the runs in this order, ``at_once`` at a time; returns the names of those that failed.

    Several at a time wait for each other's models. A step that failed for one is not tried again for the next.
    """
    failures: set[Path] | None = None if at_once == 1 else set()

    def do(number: int, run: Run) -> bool:
        if is_finished(run, folder):
            return True
        log = run.folder(folder) / "log.txt"
        needs = run.needs
        before = f", after {needs.minutes:.0f} min of {needs.name}" if needs and not is_finished(needs, folder) else ""
        print(f"[{number}/{len(runs)}] {run.name}, about {run.minutes:.0f} min{before}; log: {log}", flush=True)
        try:
            print(f"    {run.name}: {outcome(carry_out(run, folder, model, execute, failures))}", flush=True)
        except (AlreadyRunning, StepFailed) as error:
            print(error, file=sys.stderr)
            return False
        return True

    if at_once == 1:  # in the main thread, which a smoke run trains in
        return [run.name for number, run in enumerate(runs, start=1) if not do(number, run)]
    with ThreadPoolExecutor(at_once) as pool:
        asked = {pool.submit(do, number, run): run.name for number, run in enumerate(runs, start=1)}
        try:
            for one in as_completed(asked):
                one.result()
        except BaseException:  # Ctrl-C, which ends the commands, too
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [name for one, name in asked.items() if not one.result()]


def say(text: str) -> int:
    """Print, and return the exit status: that of a reader which has closed the output, as `head` does, is 141."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def outcome(result: dict[str, Any]) -> str:
    """A finished run in a few words."""
    if "memory" in result:
        return f"peak {result['memory']['peak_mib']:,.0f} MiB"
    found = next(iter(next(iter(result["evaluations"].values())).values()))["model"]
    return f"success {found['success']:.2f} [{found['success_low']:.2f}, {found['success_high']:.2f}], n = {found['n']}"


def collected(script: Script, runs: Sequence[Run], folder: Path, path: Path, model: str) -> dict[str, Any]:
    """All finished runs with the present settings: those of an earlier JSON, and those that are here."""
    here = [read_json(file) for run in runs if (file := result_file(run, folder)).exists()]
    command = " ".join([f"python benchmarks/{script.name}.py", *sys.argv[1:]])
    before = written_before(path)
    begun = begun_before(runs, before) | stopped(runs, folder)
    asked = {name: game["products"] for name, game in before.get("games", {}).items() if "products" in game}
    products = products_asked_for(script.games, asked)
    found = known(runs, [*before.get("runs", {}).values(), *here])
    content = collect(runs, found, command, Path(model).name, script.games, path.stem, begun, products)
    return {**content, "on": script.on}


def written_before(path: Path) -> dict[str, Any]:
    """The JSON of an earlier call; empty where there is none."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    return content


def begun_before(runs: Sequence[Run], before: Mapping[str, Any]) -> dict[str, Any]:
    """Of runs with the present settings, what an earlier JSON says of those that were stopped."""
    now = {run.name: run.digest for run in runs}
    return {name: each for name, each in before.get("stopped", {}).items() if now.get(name) == each["digest"]}


def in_this_process(words: Sequence[str], log: IO[str]) -> int:
    """Do a command here: what a smoke run saves is starting processes."""
    from agents.memory_probe import probe
    from ragen_trl.cli.main import main as command

    with redirect_stdout(log), redirect_stderr(log):
        try:
            return probe(list(words[1:])) if words[0] == "memory" else command(list(words))
        except SystemExit as ended:  # wrong options
            return int(ended.code or 0)


def tiny_model(folder: Path) -> Path:
    """A random Llama of two layers with the tokenizer of the embedded model, saved as any model is."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    from ragen_trl.policies.tiny_model import build_tiny_tokenizer

    if not folder.exists():
        tokenizer = build_tiny_tokenizer()
        set_seed(0)
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **ends)
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def fail(message: str) -> int:
    """Say what is wrong."""
    print(f"error: {message}", file=sys.stderr)
    return 2
