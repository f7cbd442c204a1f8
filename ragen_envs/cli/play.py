"""Play an environment by hand or watch a policy, in exactly the messages of `AgentTurns` or `ToolTurns`.

A seed gives the same episode as in the baselines.
"""

import contextlib
import enum
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from ragen_envs.baselines import POLICIES, episode_seeds
from ragen_envs.calling import Tool, ToolEnv, ToolTurns
from ragen_envs.oracles import NoOracleError, explain, plan
from ragen_envs.reply_format import END_THINK, TAGS, THINK
from ragen_envs.turns import AgentTurns

_UP, _DOWN, _LEFT, _RIGHT = ("up", "w"), ("down", "s"), ("left", "a"), ("right", "d")
_DIRECTIONS = {"up": _UP, "down": _DOWN, "left": _LEFT, "right": _RIGHT}
_DIRECTIONS |= {"north": _UP, "south": _DOWN, "west": _LEFT, "east": _RIGHT}
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_MARK = "-- "  # before every line that a model does not see


class Command(enum.Enum):
    """What a player can do instead of a move."""

    QUIT = "q"
    NEXT = "r"
    HELP = "h"


COMMANDS = {command.value: command for command in Command}
_IN_WORDS = "r: next seed, h: help, q: quit"


class Game:
    """A game in the messages that a model gets. A model never sees the lines that start with ``--``.

    Tools are named in such lines, because a model sees them in the words of its own chat template.

    Args:
        turns: The environment.
        name: Its name in titles.
    """

    def __init__(self, turns: AgentTurns, name: str) -> None:
        """Takes the environment; the arguments are described in the class docstring."""
        self._turns, self._name, self.is_over = turns, name, False

    def is_action(self, line: str) -> bool:
        """Whether a line is the name of a valid action."""
        return line.casefold() in {name.casefold() for name in self._turns.actions or ()}

    def begin(self, seed: int) -> str:
        """Starts the episode of a seed; returns the first message."""
        message, _ = self._turns.reset(seed=seed, options={"outcome_seed": episode_seeds(seed)[0]})
        self._return, self._actions, self._notes, self.is_over = 0.0, 0, "", False
        found = map(Tool.of, self._turns.game.tools) if isinstance(self._turns, ToolTurns) else ()
        tools = [f"{_MARK}{tool.signature}: {' '.join(tool.description.split())}" for tool in found]
        self._title = f"{_MARK}{self._name}, seed {seed}"
        return "\n".join([self._title, message, *tools])

    def take(self, move: str) -> str:
        """Takes a turn.

        Args:
            move: A whole reply with tags, or only actions, which are written as a reply. With tools: a reply as it
                is; an empty thought is added where there must be one.

        Returns:
            The next message.
        """
        message, reward, terminated, truncated, info = self._turns.step(self._reply(move))
        self._return += reward
        self._actions += info["num_actions"]
        self.is_over = terminated or truncated
        notes = [f"format penalty {info['format_penalty']:g}"] if info["format_penalty"] else []
        notes += [f"ignored, past a limit: {', '.join(info['surplus_actions'])}"] if info["surplus_actions"] else []
        if self.is_over:
            limit = f", limit: {info['limit']}" if info["limit"] else ""
            counts = f"return {self._return:g}, {_count(self._actions, 'action')} in {_count(info['turn'], 'turn')}"
            notes.append(f"{'success' if info['success'] else 'no success'}{limit}, {counts}")
        self._notes = "".join(f"\n{_MARK}{note}" for note in notes)
        return f"{message}{self._notes}"

    def suggest(self, policy: str, rng: np.random.Generator) -> str:
        """The reply of a policy from `POLICIES`, with a thought if replies have one and it can be explained.

        It has as many actions as a turn allows; all but the first are planned on imagined outcomes.
        """
        length, left = self._turns.max_actions_per_turn, self._turns.actions_left
        if length == 1:
            actions = [POLICIES[policy](self._turns, left, rng)]
        else:
            actions = plan(self._turns, left, length, rng, float(policy == "random"))
        with contextlib.suppress(NoOracleError):
            if self._turns.reply_format.think:
                return self._turns.format_reply(actions, explain(self._turns, actions, rng.spawn(1)[0]))
        return self._turns.format_reply(actions)

    def help(self) -> str:
        """How to write a reply, and the commands."""
        if self.is_over:
            return f"{_MARK}the episode is over; {_IN_WORDS}"
        if isinstance(self._turns, ToolTurns):
            call = '{"name": "a tool", "arguments": {"its argument": "a value"}}'
            return f"{_MARK}type a call ({call}), or an answer in words, which ends the episode; {_IN_WORDS}"
        separator = f" {self._turns.action_separator} "
        example = separator.join((self._turns.actions or ("an action",))[:2])
        return f"{_MARK}type actions ({example}) or a whole reply with its tags; {_IN_WORDS}"

    def bindings(self) -> dict[str, str]:
        """The keys of this episode's actions."""
        return key_bindings(self._turns.actions)

    def screen(self) -> str:
        """Rules, state and keys, for a player with keys."""
        keys: dict[str, list[str]] = {}
        for key, action in ({} if self.is_over else self.bindings()).items():
            keys.setdefault(action, []).append(key)
        named = ", ".join([*(f"{action}: {' or '.join(names)}" for action, names in keys.items()), _IN_WORDS])
        return f"{self._title}\n{self._turns.opening}{self._notes}\n\n{named}"

    def _reply(self, move: str) -> str:
        if isinstance(self._turns, ToolTurns):
            return move if not self._turns.reply_format.think or THINK in move else f"{THINK}{END_THINK}{move}"
        parts = (part.strip() for part in move.split(self._turns.action_separator))
        actions = [part for part in parts if part]
        return move if not actions or any(tag in move for tag in TAGS) else self._turns.format_reply(actions)


Player = Callable[[Game], str | Command]
"""Decides what happens next in a game: a move, or a command; only a command when the game is over."""


def play(game: Game, player: Player, show: Callable[[str], None], seed: int) -> None:
    """Plays episode after episode, each with the next seed, until the player quits.

    Args:
        game: What is played.
        player: Who plays it.
        show: Takes each text to display.
        seed: Seed of the first episode, 0 or more.
    """
    show(game.begin(seed))
    while (decision := player(game)) is not Command.QUIT:
        if decision is Command.NEXT:
            seed += 1
            show(game.begin(seed))
        else:
            show(game.help() if isinstance(decision, Command) else game.take(decision))


def by_keys(read_key: Callable[[], str]) -> Player:
    """A person at the keyboard, one action a reply; `read_key` waits for a key and returns "" at the end."""

    def decide(game: Game) -> str | Command:
        while key := read_key():
            if not game.is_over and key in game.bindings():
                return game.bindings()[key]
            if key in COMMANDS:
                return COMMANDS[key]
        return Command.QUIT

    return decide


def by_lines(read_line: Callable[[], str | None]) -> Player:
    """A person or a pipe that writes lines; `read_line` returns None at the end of the input.

    A line is a command unless an action has that name.
    """

    def decide(game: Game) -> str | Command:
        while (line := read_line()) is not None:
            line = line.strip()
            if line.casefold() in COMMANDS and (game.is_over or not game.is_action(line)):
                return COMMANDS[line.casefold()]
            if line:
                return Command.HELP if game.is_over else line
        return Command.QUIT

    return decide


def by_policy(policy: str, seed: int, delay: float, show: Callable[[str], None]) -> Player:
    """A policy, for one episode.

    Args:
        policy: Its name in `POLICIES`.
        seed: The episode's seed, which also fixes the sampling seed.
        delay: Seconds before each move.
        show: Takes each move to display.
    """
    rng = np.random.default_rng(episode_seeds(seed)[1])

    def decide(game: Game) -> str | Command:
        if game.is_over:
            return Command.QUIT
        time.sleep(delay)
        move = game.suggest(policy, rng)
        show(f"> {move}")
        return move

    return decide


def turns_of(env: gymnasium.Env[str, str], **limits: Any) -> AgentTurns:
    """The wrapper in which trainers let a model play; `limits` are arguments that both kinds have."""
    return ToolTurns(env, **limits) if isinstance(env.unwrapped, ToolEnv) else AgentTurns(env, **limits)


def key_bindings(actions: Sequence[str] | None) -> dict[str, str]:
    """The keys of the actions.

    Directions, also compass directions, get the arrow and the letter of wasd; other actions get digits, starting at 1.

    Args:
        actions: Names of the valid actions; None for free text.

    Returns:
        Action by name of a key; empty if there are not enough keys.

    Example:
        >>> key_bindings(("North", "Wait"))
        {'up': 'North', 'w': 'North', '1': 'Wait'}
    """
    keys: dict[str, str] = {}
    others = []
    for action in actions or ():
        wanted = _DIRECTIONS.get(action.casefold(), ())
        if wanted and wanted[0] not in keys:
            keys |= dict.fromkeys(wanted, action)
        else:
            others.append(action)
    return {} if len(others) > 9 else keys | {str(digit): action for digit, action in enumerate(others, start=1)}


def has_keys() -> bool:
    """Whether input and output are a terminal whose keys can be read one by one, which needs POSIX."""
    try:
        import termios  # noqa: F401
    except ImportError:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def keyboard(terminal: int) -> Iterator[Callable[[], str]]:
    """Gives a function that waits for a key of a terminal; at the end the terminal gets its former mode back.

    The function returns "up", "down", "left" or "right" for an arrow, a character in lower case, "escape" for any other
    special key, and "" for Ctrl-D or a closed terminal. Ctrl-C still interrupts.
    """
    import termios
    import tty

    def read() -> str:
        try:
            key = os.read(terminal, 1)
            if key != b"\x1b":
                return "" if key == b"\x04" else key.decode("latin-1").lower()
            # The sequence of a special key arrives all at once.
            rest = os.read(terminal, 8) if select.select([terminal], [], [], 0.05)[0] else b""
        except OSError:
            return ""
        return _ARROWS.get(rest[1:2], "escape")

    mode = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, mode)  # drops unread keys, so that no shell executes them


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
