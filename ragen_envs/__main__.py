"""The command ``python -m ragen_envs {play,baselines,check,list}``: see, measure and check environments.

A user's mistake ends with one line and exit status 2, Ctrl-C with status 130, both without a traceback.
"""

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from ragen_envs.baselines import POLICIES, default_horizon, default_turns, environment_ids, make_named, measure
from ragen_envs.calling import ToolEnv, ToolTurns
from ragen_envs.check import check
from ragen_envs.errors import EnvError
from ragen_envs.play import Game, play, watch
from ragen_envs.text_env import NoOracleError, TextEnv
from ragen_envs.turns import AgentTurns

_EXAMPLES = """examples:
  python -m ragen_envs play ragen/Sokoban-v0                  the messages a model gets; type actions or replies
  python -m ragen_envs play ragen/FrozenLake-v0 --oracle --env_kwargs '{"size": 8}'
  printf 'Right\\nDown\\nq\\n' | python -m ragen_envs play ragen/FrozenLake-v0
  python -m ragen_envs baselines --json baselines.json        random policy and oracle on every environment
  python -m ragen_envs check my_games:my/Game-v0              is it fit to train on: seeds, ends, cheats that pay
"""
_HEADS = "{:{width}}  policy  actions        success [95 %]   return  length       n  seconds"
_ROW = (
    "{env:{width}}  {policy:6}  {horizon:7}  {success:5.3f} [{low:.3f}, {high:.3f}]  {mean_return:7.3f}  "
    "{mean_length:6.2f}  {n:6}  {seconds:7.1f}"
)
_say = partial(print, flush=True)


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
    options = parser.parse_args(arguments, argparse.Namespace(command=shlex.join(["ragen_envs", *arguments])))
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
    commands = parser.add_subparsers(required=True, metavar="{play,baselines,check,list}")

    one = commands.add_parser("play", help="play by hand, or watch a policy", epilog=_EXAMPLES, formatter_class=raw)
    one.add_argument("env", metavar="ID", help="for example ragen/Sokoban-v0; `list` shows all; or your own module:id")
    one.add_argument("--text", action="store_true", help="a policy's replies with thoughts, as a model writes them")
    watched = one.add_mutually_exclusive_group()
    for policy in POLICIES:
        words = f"watch the {policy} policy for one episode"
        watched.add_argument(f"--{policy}", dest="policy", action="store_const", const=policy, help=words)
    one.add_argument("--delay", type=float, help="seconds between its moves (default 0.5 on a terminal, else 0)")
    one.add_argument("--no_think", action="store_true", help="no thought before the answer, by hand or with --text")

    rows = commands.add_parser("baselines", help="success of the random policy and the oracle, with 95 %% intervals")
    rows.add_argument("envs", nargs="*", metavar="ID", help="default: every ragen/ environment")
    rows.add_argument("--episodes", type=_number(1), default=2048, help="number of seeds (default 2048)")

    checked = commands.add_parser("check", help="whether an environment is fit to train on; status 1 if it has a fault")
    checked.add_argument("env", metavar="ID", help="any Gymnasium id with text, or your own module:id")
    checked.add_argument("--episodes", type=_number(8), default=64, help="of each policy (default 64, at least 8)")

    for command, run in ((one, _play), (rows, _baselines), (checked, _check)):
        command.set_defaults(run=run)
        if command is not checked:
            command.add_argument("--seed", type=_number(0), default=0, help="of the first episode (default 0)")
        if command is not one:
            command.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to it")
        command.add_argument("--env_kwargs", type=_env_kwargs, default={}, help="JSON, for example '{\"size\": 8}'")
        command.add_argument("--max_actions", type=_number(1), help="actions per episode (default: as in RAGEN)")
    commands.add_parser("list", help="the environments there are").set_defaults(run=_list)
    return parser


def _play(options: argparse.Namespace) -> None:
    env = make_named(options.env, options.env_kwargs)
    if not isinstance(env.unwrapped, TextEnv):
        raise EnvError(f"{options.env} is not a TextEnv; ragen_envs.TextFromDiscrete may make one from it")
    most, as_model = options.max_actions or default_horizon(env), options.text or options.policy is None
    limits = {"max_turns": most, "max_actions_per_turn": 1, "max_actions": most}
    if as_model:
        limits = default_turns(env) | ({"max_actions": most} if options.max_actions else {})
    wrapper = ToolTurns if isinstance(env.unwrapped, ToolEnv) else AgentTurns
    game = Game(wrapper(env, **limits, think=as_model and not options.no_think), options.env)
    if options.policy is None:
        play(game, _read_line, _say, options.seed)
    else:
        delay = (0.5 if sys.stdout.isatty() else 0.0) if options.delay is None else options.delay
        watch(game, options.policy, _say, options.seed, delay)


def _baselines(options: argparse.Namespace) -> None:
    env_ids, rows = options.envs or environment_ids(), []
    width = max(map(len, env_ids))
    _say(_HEADS.format("environment", width=width))
    for env_id, policy in ((env_id, policy) for env_id in env_ids for policy in POLICIES):
        try:
            row = measure(env_id, policy, options.max_actions, options.episodes, options.env_kwargs, options.seed)
        except EnvError as error:
            if options.envs and not isinstance(error, NoOracleError):
                raise
            print(f"left out: {error}", file=sys.stderr)
            continue
        _say(_ROW.format(**row, width=width))
        rows.append(row)
    if not rows:
        raise EnvError("nothing was measured, because these environments have no policies")
    _write(options, {"rows": rows})


def _check(options: argparse.Namespace) -> int:
    lines = []
    for line in check(options.env, options.env_kwargs, options.episodes, options.max_actions):
        _say(f"{line.check:20} {line.verdict:8} {line.finding}")
        lines.append(line)
    faults = sum(line.verdict == "FAULT" for line in lines)
    _say(f"{options.env}: {faults or 'no'} fault{'s' * (faults != 1)} in {len(lines)} checks")
    found = {"env": options.env, "env_kwargs": options.env_kwargs, "episodes": options.episodes, "faults": faults}
    _write(options, {**found, "lines": [line._asdict() for line in lines]})
    return int(faults > 0)


def _write(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Writes what was found to the file of ``--json``, if there is one, with the command that finds it again."""
    if options.json is not None:
        options.json.write_text(json.dumps({"command": f"python -m {options.command}", **found}, indent=2) + "\n")
        _say(f"written to {options.json}")


def _list(options: argparse.Namespace) -> None:
    """One line for each: the first of its docstring, and the arguments that its id sets."""
    width = max(map(len, environment_ids()))
    for env_id in environment_ids():
        spec = gymnasium.spec(env_id)
        changed = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        summary = (load_env_creator(str(spec.entry_point)).__doc__ or "").partition("\n")[0]
        _say(f"{env_id:{width}}  {summary}{f' ({changed})' if changed else ''}")


def _env_kwargs(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error}); write '{{\"size\": 8}}'") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object; write '{{\"size\": 8}}'")
    return found


def _number(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least so much."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")
        return int(text)

    return read


def _read_line() -> str | None:
    """A line from the terminal or the pipe. Lines from a pipe are printed, so that the output can be read."""
    try:
        line = input("> ")
    except EOFError:
        return None
    if not sys.stdin.isatty():
        _say(line)
    return line


if __name__ == "__main__":
    sys.exit(main())
