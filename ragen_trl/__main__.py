"""``python -m ragen_trl {train,warm-start,eval,report}``.

Options are the fields of the configuration dataclasses, as in TRL's scripts; ``--config file.yaml`` gives defaults for
them. A user's mistake ends with one line and exit status 2, Ctrl-C with 130 after a checkpoint; neither with a trace.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

_USAGE = """usage: python -m ragen_trl COMMAND [options]

  train       warm-start the embedded tiny model (or take --model), train it, evaluate, report
  warm-start  fine-tune a model on oracle play and save it
  eval        success of a saved model, or one behind an API, on held-out start states, next to random and the oracle
  report      one HTML page from finished runs

`python -m ragen_trl COMMAND --help` lists the options. For example:

  python -m ragen_trl train
  python -m ragen_trl train --env ragen/Bandit-v0 --algo starpo --max_steps 50
  python -m ragen_trl train --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5
  python -m ragen_trl eval --model runs/frozenlake-starpo-s-seed42/model
  OPENAI_API_KEY=... python -m ragen_trl eval --api_model NAME --api_base https://HOST/v1 --output_dir runs/api
  python -m ragen_trl report runs/*
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "warm-start": _warm_start,
        "eval": _eval,
        "report": _report,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0 if arguments else 2
    if arguments[0] not in commands:
        return _fail(f"unknown command {arguments[0]!r}; choose one of {', '.join(commands)}")
    try:
        _quiet()
        return commands[arguments[0]](arguments[1:])
    except KeyboardInterrupt:
        print("\nstopped; finished stages are kept, the same command goes on behind them", file=sys.stderr)
        return 130
    except Exception as error:
        if _disk_is_full(error):
            return _fail(f"the disk is full ({error}); free some space and repeat the command, it goes on where it can")
        if isinstance(error, _user_errors()):
            return _fail(str(error))
        raise


def _train(argv: list[str]) -> int:
    from trl.import_utils import is_vllm_available

    from ragen_trl import experiment
    from ragen_trl.imitation import WarmStartConfig
    from ragen_trl.report import results_table

    run, warm, args = _parse("train", argv, experiment.RunArguments, WarmStartConfig)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return _fail("this command runs in one process; for several, launch a script of your own with StarPOTrainer")
    if args.use_vllm and not is_vllm_available():
        return _fail("use_vllm is True, but vLLM is not installed; pip install -e '.[vllm]', or leave it out")
    args.output_dir = args.output_dir or str(experiment.default_folder(run, args.seed))
    print(f"{run.algo} on {run.env} {args.env_kwargs or ''}, run folder {args.output_dir}")
    try:
        summary = experiment.train(run, warm, args, _say)
    except experiment.Interrupted as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return 130
    folder = Path(args.output_dir)
    print(results_table(summary))
    print(f"summary: {folder / 'summary.json'}\nreport:  {folder / 'report.html'}\nmodel:   {folder / 'model'}")
    return 0


def _warm_start(argv: list[str]) -> int:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ragen_trl.experiment import ModelArguments
    from ragen_trl.imitation import WarmStartConfig, warm_start
    from ragen_trl.model_loading import check_model
    from ragen_trl.tiny_model import build_tiny_model, build_tiny_tokenizer

    run, warm, args = _parse("warm-start", argv, ModelArguments, WarmStartConfig)
    if run.model is None:
        tokenizer = build_tiny_tokenizer(env=run.env)
        model = build_tiny_model(tokenizer, args.seed)
    else:
        check_model(run.model)
        tokenizer, model = AutoTokenizer.from_pretrained(run.model), AutoModelForCausalLM.from_pretrained(run.model)
    target = args.output_dir or f"runs/warm-start-seed{args.seed}"
    print(f"saved to {warm_start(model, tokenizer, run.env, args, warm, target)}")
    return 0


def _eval(argv: list[str]) -> int:
    from ragen_trl.eval_command import ApiArguments, run_eval
    from ragen_trl.experiment import EvalArguments

    run, api, args = _parse("eval", argv, EvalArguments, ApiArguments)
    run_eval(run, api, args, _say)
    return 0


def _report(argv: list[str]) -> int:
    from ragen_trl.report import write_report

    parser = argparse.ArgumentParser(prog="python -m ragen_trl report", description="One HTML page from finished runs.")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--output", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    options = parser.parse_args(argv)
    finished = [folder for folder in options.runs if (folder / "summary.json").exists()]
    for folder in options.runs:
        if folder not in finished:
            print(f"left out: {folder} holds no finished run (no summary.json)", file=sys.stderr)
    try:
        print(f"report: {write_report(finished or options.runs, options.output)}")
    except ValueError as error:
        return _fail(str(error))
    return 0


@dataclass
class _Chosen:
    """The options that decide about the defaults of all others."""

    env: str | None = field(default=None)
    algo: str = field(default="starpo-s")
    advantage: str = field(default="group")
    model: str | None = field(default=None)
    api_model: str | None = field(default=None)


def _parse(command: str, argv: list[str], *dataclasses: Any) -> tuple[Any, ...]:
    """Options from the command line, then the YAML file, the model's play.json, the recipe of environment and model."""
    from trl import TrlParser

    from ragen_trl.environments import load_play_options, make_turns
    from ragen_trl.experiment import ALGORITHMS
    from ragen_trl.imitation import WarmStartConfig
    from ragen_trl.recipes import defaults, warm_start_defaults

    given, rest = _yaml(argv)
    first = TrlParser([_Chosen], add_help=False)
    first.set_defaults(**{option.name: given[option.name] for option in fields(_Chosen) if option.name in given})
    chosen = first.parse_args_into_dataclasses(rest, return_remaining_strings=True)[0]
    recorded = load_play_options(chosen.model)
    chosen.env = chosen.env or recorded.get("env", dataclasses[0].env)
    if recorded.get("env") != chosen.env:
        recorded.pop("env_kwargs", None)
    if chosen.algo not in ALGORITHMS:
        raise SystemExit(_fail(f"algo is {chosen.algo!r}; choose one of {', '.join(ALGORITHMS)}"))
    config = ALGORITHMS[chosen.algo][0]
    parser = TrlParser([*dataclasses, config], prog=f"python -m ragen_trl {command}")
    # "" is no folder yet: transformers would put "trainer_output" in the place of None.
    if not isinstance(chosen.env, str):
        raise SystemExit(_fail(f"env is {chosen.env!r}; the commands take one environment, a script takes several"))
    recipe = defaults(chosen.env, chosen.model or chosen.api_model, chosen.algo, chosen.advantage)
    if WarmStartConfig in dataclasses:
        recipe |= warm_start_defaults(chosen.env, chosen.model)
    parser.set_defaults(**{"output_dir": "", **recipe, **recorded, "env": chosen.env})
    unknown = parser.set_defaults_with_config(**given)
    if unknown:
        raise SystemExit(_fail(f"the --config file has options that do not exist: {' '.join(unknown)}"))
    try:
        parsed = parser.parse_args_into_dataclasses(rest)
        for name in ("env_weights", "reward_weights"):
            if getattr(parsed[-1], name) is not None:
                raise ValueError(f"{name} is {getattr(parsed[-1], name)}; it is for scripts with several, leave it out")
        make_turns(chosen.env, parsed[-1]).close()
    except (ValueError, TypeError) as error:
        raise SystemExit(_fail(str(error))) from None
    return tuple(parsed)


def _yaml(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """``--config FILE`` taken out of the arguments; an ``env`` mapping in it sets environment variables, as in TRL."""
    import yaml

    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", type=Path)
    options, rest = parser.parse_known_args(argv)
    if options.config is None:
        return {}, rest
    try:
        given = yaml.safe_load(options.config.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise SystemExit(_fail(f"{options.config} cannot be read: {error}")) from None
    if not isinstance(given, dict):
        raise SystemExit(_fail(f"{options.config} holds a {type(given).__name__}; it needs lines 'option: value'"))
    if isinstance(given.get("env"), dict):
        os.environ.update({name: str(value) for name, value in given.pop("env").items()})
    return given, rest


def _user_errors() -> tuple[type[Exception], ...]:
    """What a user can mend; anything else is our mistake and shows its trace."""
    import gymnasium

    from ragen_envs import NoOracleError
    from ragen_trl.errors import UserError

    return UserError, NoOracleError, gymnasium.error.Error


def _disk_is_full(error: Exception) -> bool:
    """Python says ENOSPC; torch and safetensors say it in words of their own."""
    words = ("No space left on device", "os error 28", "inline_container.cc")
    return getattr(error, "errno", None) == errno.ENOSPC or any(word in str(error) for word in words)


def _quiet() -> None:
    """One bar at a time: no output of libraries that are not asked for it."""
    import warnings

    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from datasets import disable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()
    disable_progress_bars()


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
