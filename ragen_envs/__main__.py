"""The command ``python -m ragen_envs {play,baselines,check,list}``: see, measure and check environments.

A user's mistake ends with one line and exit status 2, Ctrl-C with status 130, both without a traceback.
"""

import argparse
import contextlib
import io
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from ragen_envs import baselines
from ragen_envs.baselines import POLICIES, environment_ids, episode_seeds, explain, make_named, plan
from ragen_envs.calling import Tool, ToolEnv, ToolTurns
from ragen_envs.check import check
from ragen_envs.checkout import commit_of
from ragen_envs.errors import EnvError
from ragen_envs.reply_format import END_THINK, SEPARATOR, TAGS, THINK
from ragen_envs.text_env import NoOracleError
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
_MARK = "-- "  # before every line that a model does not see
_HELP = f"{_MARK}type actions or a whole reply (a tool's call as JSON); r: next seed, h: help, q: quit"
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
    watched = one.add_mutually_exclusive_group()
    for policy in POLICIES:
        words = f"watch the {policy} policy for one episode"
        watched.add_argument(f"--{policy}", dest="policy", action="store_const", const=policy, help=words)
    one.add_argument("--no_think", action="store_true", help="no thought before the answer")

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
    limits = baselines.default_turns(env) | ({"max_actions": options.max_actions} if options.max_actions else {})
    if options.policy:  # is watched action by action
        most = options.max_actions or baselines.default_horizon(env)
        limits = {"max_turns": most, "max_actions_per_turn": 1, "max_actions": most}
    wrapper = ToolTurns if isinstance(env.unwrapped, ToolEnv) else AgentTurns
    try:
        game = Game(wrapper(env, **limits, think=not options.no_think), options.env)
    except ValueError as error:  # it is not one of texts
        raise EnvError(f"{options.env} cannot be played: {error}") from error
    _say(game.begin(options.seed))
    if options.policy is None:
        _play_lines(game, options.seed)
        return
    rng = np.random.default_rng(episode_seeds(options.seed)[1])
    while not game.is_over:
        time.sleep(0.5 if sys.stdout.isatty() else 0.0)
        reply = game.suggest(options.policy, rng)
        _say(f"> {reply}\n{game.take(reply)}")


def _play_lines(game: "Game", seed: int) -> None:
    """Plays what is typed; a line is a command unless an action has that name."""
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if not sys.stdin.isatty():  # a pipe does not show what is written into it
            _say(line)
        names = () if game.is_over else map(str.casefold, game.turns.actions or ())
        command = "" if line.casefold() in names else line.casefold()
        if command == "q":
            return
        if command == "r":
            seed += 1
            _say(game.begin(seed))
        elif line:
            _say(_HELP if command == "h" or game.is_over else game.take(line))


class Game:
    """A game in exactly the messages that a model gets; a seed gives the same episode as in the baselines.

    A model never sees the lines that start with ``--``. Tools are named in such lines, because a model sees them in the
    words of its own chat template. ``name`` is the environment's in titles.
    """

    def __init__(self, turns: AgentTurns, name: str) -> None:
        self.turns, self.name, self.is_over = turns, name, False

    def begin(self, seed: int) -> str:
        """Starts the episode of a seed; returns the first message."""
        message, _ = self.turns.reset(seed=seed, options={"outcome_seed": episode_seeds(seed)[0]})
        self._return, self._actions, self.is_over = 0.0, 0, False
        found = map(Tool.of, self.turns.game.tools) if isinstance(self.turns, ToolTurns) else ()
        tools = [f"{_MARK}{tool.signature}: {' '.join(tool.description.split())}" for tool in found]
        return "\n".join([f"{_MARK}{self.name}, seed {seed}", message, *tools])

    def take(self, move: str) -> str:
        """Takes a turn by a whole reply, or by actions, which are written as one; returns the next message.

        With tools it is a reply as it is; an empty thought is added where there must be one.
        """
        if isinstance(self.turns, ToolTurns):
            bare = self.turns.reply_format.think and THINK not in move
            move = f"{THINK}{END_THINK}{move}" if bare else move
        elif not any(tag in move for tag in TAGS):
            actions = [part.strip() for part in move.split(SEPARATOR) if part.strip()]
            move = self.turns.format_reply(actions) if actions else move
        message, reward, terminated, truncated, info = self.turns.step(move)
        self._return += reward
        self._actions += info["num_actions"]
        self.is_over = terminated or truncated
        notes = [f"format penalty {info['format_penalty']:g}"] if info["format_penalty"] else []
        notes += [f"ignored, past a limit: {', '.join(info['surplus_actions'])}"] if info["surplus_actions"] else []
        if self.is_over:
            limit = f", limit: {info['limit']}" if info["limit"] else ""
            taken, turns = self._actions, info["turn"]
            counts = f"return {self._return:g}, {taken} action{'s' * (taken != 1)} in {turns} turn{'s' * (turns != 1)}"
            notes.append(f"{'success' if info['success'] else 'no success'}{limit}, {counts}")
        return message + "".join(f"\n{_MARK}{note}" for note in notes)

    def suggest(self, policy: str, rng: np.random.Generator) -> str:
        """The reply of a policy from `POLICIES`, with a thought if replies have one and it can be explained.

        It has as many actions as a turn allows; all but the first are planned on imagined outcomes.
        """
        turns, length = self.turns, self.turns.max_actions_per_turn
        if length == 1:
            actions = [POLICIES[policy](turns, turns.actions_left, rng)]
        else:
            actions = plan(turns, turns.actions_left, length, rng, float(policy == "random"))
        with contextlib.suppress(NoOracleError):
            if turns.reply_format.think:
                return turns.format_reply(actions, explain(turns, actions, rng.spawn(1)[0]))
        return turns.format_reply(actions)


def _baselines(options: argparse.Namespace) -> None:
    env_ids, rows = options.envs or environment_ids(), []
    for env_id in options.envs:  # a mistake is found before hours of work
        make_named(env_id, options.env_kwargs).close()
    manner = (options.max_actions, options.episodes, options.env_kwargs, options.seed)
    width = max(map(len, env_ids))
    _say(_HEADS.format("environment", width=width))
    for env_id, policy in ((env_id, policy) for env_id in env_ids for policy in POLICIES):
        try:
            row = baselines.measure(env_id, policy, *manner)
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
        versions = {name: version(name) for name in ("gymnasium", "numpy")}
        origin = {"command": f"python -m {options.command}", "commit": commit_of(Path(__file__)), "versions": versions}
        options.json.write_text(json.dumps({**origin, **found}, indent=2) + "\n")
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
        return {**json.loads(text)}
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON, as '{{\"size\": 8}}' is ({error})") from None


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")
        return int(text)

    return read


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which was off while modules loaded
    sys.exit(main())
