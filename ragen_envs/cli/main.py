"""The command line of ``python -m ragen_envs {play,baselines,check,describe,list}``: see, play, measure, check.

A user's mistake ends with one line and exit status 2, Ctrl-C with status 130, both without a traceback.
"""

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ragen_envs.baselines import POLICIES, default_horizon, default_turns, measure, write_results
from ragen_envs.check import Line, check
from ragen_envs.cli.lookup import environment_ids, make_named, one_line
from ragen_envs.cli.page import describe
from ragen_envs.cli.play import Game, play, turns_of, watch
from ragen_envs.errors import EnvError
from ragen_envs.text_env import TextEnv

_EXAMPLES = """examples:
  python -m ragen_envs play ragen/Sokoban-v0                  the messages a model gets; type actions or replies
  python -m ragen_envs play ragen/FrozenLake-v0 --oracle --env_kwargs '{"size": 8}'
  printf 'Right\\nDown\\nq\\n' | python -m ragen_envs play ragen/FrozenLake-v0
  python -m ragen_envs baselines --json baselines.json        random policy and oracle on every environment
  python -m ragen_envs check my_games:my/Game-v0              is it fit to train on: seeds, ends, cheats that pay
  python -m ragen_envs describe ragen/Sokoban-v0              its page: spaces, rewards, arguments, an episode
"""
_ROW = "{:{width}}  {:6}  {:>7}  {:>20}  {:>7}  {:>6}  {:>6}  {:>7}"


class _MistakeError(EnvError):
    """A mistake that the user can correct; the message says how."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a pipe may not know every character
            stream.reconfigure(errors="replace")
    parser = _parser()
    if not arguments:
        parser.print_help()
        return 2
    options = parser.parse_args(arguments, argparse.Namespace(arguments=arguments))
    try:
        return int(options.run(options) or 0)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (EnvError, OSError, gymnasium.error.DependencyNotInstalled) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m ragen_envs", description=__doc__, epilog=_EXAMPLES, formatter_class=raw)
    commands = parser.add_subparsers(required=True, metavar="{play,baselines,check,describe,list}")

    one = commands.add_parser("play", help="play by hand, or watch a policy", epilog=_EXAMPLES, formatter_class=raw)
    one.set_defaults(run=_play)
    one.add_argument("env", metavar="ID", help="for example ragen/Sokoban-v0; `list` shows all; or your own module:id")
    one.add_argument("--seed", type=_natural, default=0, help="of the first episode (default 0); r goes to the next")
    _add_env_options(one)
    one.add_argument("--text", action="store_true", help="a policy's replies with thoughts, as a model writes them")
    watched = one.add_mutually_exclusive_group()
    for policy in POLICIES:
        words = f"watch the {policy} policy for one episode"
        watched.add_argument(f"--{policy}", dest="policy", action="store_const", const=policy, help=words)
    one.add_argument("--delay", type=float, help="seconds between its moves (default 0.5 on a terminal, else 0)")
    one.add_argument("--no_think", action="store_true", help="no thought before the answer, by hand or with --text")

    rows = commands.add_parser("baselines", help="success of the random policy and the oracle, with 95 %% intervals")
    rows.set_defaults(run=_baselines)
    rows.add_argument("envs", nargs="*", metavar="ID", help="default: every ragen/ environment")
    rows.add_argument("--episodes", type=_positive, default=2048, help="number of seeds (default 2048)")
    rows.add_argument("--seed", type=_natural, default=0, help="the first seed (default 0)")
    _add_env_options(rows)
    rows.add_argument("--json", type=Path, metavar="FILE", help="also write the rows, command and commit to it")

    checked = commands.add_parser("check", help="whether an environment is fit to train on; status 1 if it has a fault")
    checked.set_defaults(run=_check)
    checked.add_argument("env", metavar="ID", help="any Gymnasium id with text, or your own module:id")
    checked.add_argument("--episodes", type=_positive, default=64, help="of each policy (default 64, at least 8)")
    _add_env_options(checked)
    checked.add_argument("--json", type=Path, metavar="FILE", help="also write the lines to it")

    page = commands.add_parser("describe", help="the page of an environment, in Markdown, as its docstrings say it")
    page.set_defaults(run=_describe)
    page.add_argument("env", metavar="ID", help="any Gymnasium id, or your own module:id")
    words = "results of `baselines --json`; their rows of this environment are shown"
    page.add_argument("--rows", type=Path, nargs="+", metavar="FILE", default=[], help=words)

    commands.add_parser("list", help="the environments there are").set_defaults(run=_list)
    return parser


def _add_env_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env_kwargs", type=_env_kwargs, default={}, help="JSON, for example '{\"size\": 8}'")
    parser.add_argument("--max_actions", type=_positive, help="actions per episode (default: as in RAGEN)")


def _play(options: argparse.Namespace) -> None:
    env, policy, seed = make_named(options.env, options.env_kwargs), options.policy, options.seed
    if not isinstance(env.unwrapped, TextEnv):
        raise _MistakeError(f"{options.env} is not a TextEnv; ragen_envs.TextFromDiscrete may make one from it")
    max_actions = options.max_actions or _horizon(env)
    if policy is not None:  # one that is not there is told before anything is shown
        env.reset(seed=seed)
        POLICIES[policy](env, max_actions, np.random.default_rng(seed))
    limits = {"max_turns": max_actions, "max_actions_per_turn": 1, "max_actions": max_actions}
    as_model = options.text or policy is None
    if as_model:
        limits = default_turns(env.spec) | ({"max_actions": max_actions} if options.max_actions else {})
    game = Game(turns_of(env, **limits, think=as_model and not options.no_think), options.env)
    if policy is None:
        play(game, _read_line, _say, seed)
    else:
        delay = (0.5 if sys.stdout.isatty() else 0.0) if options.delay is None else options.delay
        watch(game, policy, _say, seed, delay)


def _baselines(options: argparse.Namespace) -> None:
    horizons = {}
    for env_id in options.envs or environment_ids():  # find every mistake before the work begins
        try:
            env = make_named(env_id, options.env_kwargs)
            horizons[env_id] = options.max_actions or _horizon(env)
            env.close()
        except EnvError as error:
            if options.envs:
                raise
            print(f"left out: {error}", file=sys.stderr)
    width = max(map(len, horizons))
    heads = ("environment", "policy", "actions", "success [95 %]", "return", "length", "n", "seconds")
    _say(_ROW.format(*heads, width=width))
    rows = []
    for env_id, horizon in horizons.items():
        for policy in POLICIES:
            try:
                row = measure(env_id, policy, horizon, options.episodes, options.env_kwargs, options.seed)
            except EnvError as error:  # it has no such policy
                print(f"left out: {error}", file=sys.stderr)
                continue
            success = f"{row.success:.3f} [{row.low:.3f}, {row.high:.3f}]"
            numbers = (f"{row.mean_return:.3f}", f"{row.mean_length:.2f}", row.n, f"{row.seconds:.1f}")
            _say(_ROW.format(env_id, policy, row.horizon, success, *numbers, width=width))
            rows.append(row)
    if not rows:
        raise _MistakeError("nothing was measured, because these environments have no policies")
    if options.json is not None:
        write_results(options.json, rows, shlex.join(["python", "-m", "ragen_envs", *options.arguments]))
        _say(f"written to {options.json}")


def _check(options: argparse.Namespace) -> int:
    if options.episodes < 8:
        raise _MistakeError(f"--episodes {options.episodes} tells nothing from chance; take 8 or more")
    lines: list[Line] = []
    for line in check(options.env, options.env_kwargs, options.episodes, options.max_actions):
        _say(f"{line.check:20} {line.verdict:8} {line.finding}")
        lines.append(line)
    faults = sum(line.verdict == "FAULT" for line in lines)
    _say(f"{options.env}: {faults or 'no'} fault{'s' * (faults != 1)} in {len(lines)} checks")
    if options.json is not None:
        found = {"env": options.env, "env_kwargs": options.env_kwargs, "episodes": options.episodes, "faults": faults}
        options.json.write_text(json.dumps({**found, "lines": [line._asdict() for line in lines]}, indent=2) + "\n")
    return int(faults > 0)


def _describe(options: argparse.Namespace) -> None:
    rows = [row for path in options.rows for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    _say(describe(options.env, rows).rstrip())


def _list(options: argparse.Namespace) -> None:
    width = max(map(len, environment_ids()))
    for env_id in environment_ids():
        _say(f"{env_id:{width}}  {one_line(env_id)}")


def _horizon(env: gymnasium.Env[str, str]) -> int:
    assert env.spec is not None  # gymnasium.make sets it
    try:
        return default_horizon(env.spec)
    except ValueError:
        raise _MistakeError(f"{env.spec.id} has no time limit; say how many actions: --max_actions 10") from None


def _env_kwargs(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error}); write '{{\"size\": 8}}'") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object; write '{{\"size\": 8}}'")
    return found


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if not _natural(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 or more")
    return int(text)


def _read_line() -> str | None:
    """A line from the terminal or the pipe. Lines from a pipe are printed, so that the output can be read."""
    try:
        line = input("> ")
    except EOFError:
        return None
    if not sys.stdin.isatty():
        _say(line)
    return line


def _say(text: str) -> None:
    print(text, flush=True)
