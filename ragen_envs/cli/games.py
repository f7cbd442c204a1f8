"""Play an environment by hand or watch a policy, as single actions or as the messages that a model gets.

`Moves` takes one action at a time; `Replies` takes whole replies and shows the exact messages of `AgentTurns` or
`ToolTurns`. A seed gives the same episode as in the baselines.
"""

import contextlib
import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np

from ragen_envs.arguments import check_integer
from ragen_envs.baselines import POLICIES, episode_seeds
from ragen_envs.calling import Tool, ToolEnv, ToolTurns
from ragen_envs.oracles import NoOracleError, plan
from ragen_envs.reply_format import END_THINK, TAGS, THINK
from ragen_envs.text_env import TextEnv, allowed_actions
from ragen_envs.thoughts import explain
from ragen_envs.turns import AgentTurns

Show = Callable[[str], None]

_UP, _DOWN, _LEFT, _RIGHT = ("up", "w"), ("down", "s"), ("left", "a"), ("right", "d")
_DIRECTIONS = {"up": _UP, "down": _DOWN, "left": _LEFT, "right": _RIGHT}
_DIRECTIONS |= {"north": _UP, "south": _DOWN, "west": _LEFT, "east": _RIGHT}
_MARK = "-- "  # before every line that a model does not see


class Command(enum.Enum):
    """What a player can do instead of a move."""

    QUIT = enum.auto()
    RESTART = enum.auto()
    HELP = enum.auto()


COMMANDS = {"q": Command.QUIT, "r": Command.RESTART, "h": Command.HELP, "?": Command.HELP}
_COMMANDS_IN_WORDS = "r: next seed, h: help, q: quit"


class Game(Protocol):
    """An environment being played, as text."""

    is_over: bool

    def begin(self, seed: int) -> str:
        """Start an episode; returns what to show."""

    def take(self, move: str) -> str:
        """Make a move; returns what to show."""

    def suggest(self, policy: str, rng: np.random.Generator) -> str:
        """The move of a policy from `POLICIES`."""

    def help(self) -> str:
        """The possible moves and commands."""


class Player(Protocol):
    """Decides what happens next."""

    def decide(self, game: Game) -> str | Command:
        """A move, or a command; only a command when the game is over."""


def play(game: Game, player: Player, show: Show, seed: int) -> None:
    """Plays episode after episode, each with the next seed, until the player quits.

    Args:
        game: What is played.
        player: Who plays it.
        show: Takes each text to display.
        seed: Seed of the first episode, 0 or more.
    """
    show(game.begin(seed))
    while (decision := player.decide(game)) is not Command.QUIT:
        if decision is Command.RESTART:
            seed += 1
            show(game.begin(seed))
        elif isinstance(decision, Command):
            show(game.help())
        else:
            show(game.take(decision))


def key_bindings(actions: Sequence[str] | None) -> dict[str, str]:
    """The keys of the actions.

    Directions, also compass directions, get the arrow and the letter of wasd; other actions get digits, starting at 1.

    Args:
        actions: Names of the valid actions; None for free text.

    Returns:
        Action by name of a key (see `Keyboard.read`); empty if there are not enough keys.

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
    if len(others) > 9:
        return {}
    return keys | {str(digit): action for digit, action in enumerate(others, start=1)}


class Moves:
    """One primitive action at a time.

    Args:
        env: The environment; unwrapped it is a `TextEnv`.
        name: Its name in titles.
        max_actions: Actions per episode, at least 1.
        screen: Whether every text fills a whole screen, with the task and the keys.

    Raises:
        ValueError: If no action is allowed.
    """

    def __init__(self, env: gymnasium.Env[str, str], name: str, max_actions: int, screen: bool = False) -> None:
        """Takes the environment; the arguments are described in the class docstring."""
        check_integer("max_actions", max_actions, 1, "leaves nothing to play")
        assert isinstance(env.unwrapped, TextEnv)
        self._env = env
        self._text_env = env.unwrapped
        self._name = name
        self._max_actions = max_actions
        self._screen = screen
        self.is_over = False

    def begin(self, seed: int) -> str:
        """Starts the episode of a seed."""
        self._observation, _ = self._env.reset(seed=seed, options={"outcome_seed": episode_seeds(seed)[0]})
        self._title = f"{self._name}, seed {seed}\n\n{self._text_env.instruction}"
        self._return, self._taken, self.is_over = 0.0, 0, False
        self._news = f"{_count(self._left, 'action')} left"
        return self._frame() if self._screen else f"{self._title}\n\n{self._frame()}"

    def take(self, move: str) -> str:
        """Carries out an action."""
        self._observation, reward, terminated, truncated, info = self._env.step(move)
        self._return += float(reward)
        self._taken += 1
        left = self._left
        self.is_over = terminated or truncated or left == 0
        remarks = [key.replace("_", " ") for key in self._text_env.idle_info if info[key] is True]
        remarks += [] if info["action_is_effective"] else ["nothing changed"]
        done = f"{move} ({', '.join(remarks)})" if remarks else move
        self._news = f"{done}: reward {float(reward):g}, return {self._return:g}, {_count(left, 'action')} left"
        if self.is_over:
            why = _verdict(info["success"]) + ("" if terminated else ", a limit was reached")
            self._news += f"\nThe end: {why}, return {self._return:g}, {_count(self._taken, 'action')}"
        return self._frame()

    def suggest(self, policy: str, rng: np.random.Generator) -> str:
        """The action of a policy."""
        return POLICIES[policy](self._env, self._left, rng)

    @property
    def _left(self) -> int:
        return allowed_actions(self._env, self._max_actions - self._taken)

    def bindings(self) -> dict[str, str]:
        """The keys of this episode."""
        return key_bindings(self._text_env.actions)

    def help(self) -> str:
        """A line for each action with its keys, and the commands."""
        keys = self.bindings()
        lines = []
        for action in dict.fromkeys(keys.values()):
            names = [f"{key} arrow" if len(key) > 1 else key for key, bound in keys.items() if bound == action]
            lines.append(f"{action}: {' or '.join(names)}")
        text = "\n".join([*lines, f"{_COMMANDS_IN_WORDS} (or Ctrl-D, Ctrl-C)"])
        return f"{self._frame()}\n\n{text}" if self._screen else text

    def _frame(self) -> str:
        if not self._screen:
            return f"{self._observation}\n{self._news}\n"
        keys = self.bindings()
        hints = [f"{key}: {action}" for key, action in keys.items() if key.isdigit()]
        if len(hints) < len(keys):
            hints.insert(0, "arrow keys or wasd: move")
        hint = ", ".join([*([] if self.is_over else hints), _COMMANDS_IN_WORDS])
        return f"{self._title}\n\n{self._observation}\n\n{self._news}\n\n{hint}"


def turns_of(env: gymnasium.Env[str, str], **limits: Any) -> AgentTurns:
    """The wrapper in which trainers let a model play.

    Args:
        env: The environment; unwrapped it is a `TextEnv`.
        **limits: Arguments of `AgentTurns` that `ToolTurns` has as well.
    """
    return ToolTurns(env, **limits) if isinstance(env.unwrapped, ToolEnv) else AgentTurns(env, **limits)


class Replies:
    """Whole replies, and exactly the messages that a model gets. A model never sees the lines that start with ``--``.

    Tools are named in such lines, because a model sees them in the words of its own chat template.

    Args:
        turns: The environment.
        name: Its name in titles.
    """

    def __init__(self, turns: AgentTurns, name: str) -> None:
        """Takes the environment; the arguments are described in the class docstring."""
        self._turns = turns
        self._name = name
        self.is_over = False

    def is_action(self, line: str) -> bool:
        """Whether a line is the name of a valid action."""
        return line.casefold() in {name.casefold() for name in self._turns.actions or ()}

    def begin(self, seed: int) -> str:
        """Starts the episode of a seed; returns the first message."""
        message, _ = self._turns.reset(seed=seed, options={"outcome_seed": episode_seeds(seed)[0]})
        self._return, self._actions, self.is_over = 0.0, 0, False
        return "\n".join([f"{_MARK}{self._name}, seed {seed}", message, *self._tools()])

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
            notes.append(f"{_verdict(info['success'])}{limit}, {counts}")
        return "\n".join([message, *(_MARK + note for note in notes)])

    def suggest(self, policy: str, rng: np.random.Generator) -> str:
        """A reply with as many actions as a turn allows, and a thought if replies have one and it can be explained.

        All actions but the first are planned on imagined outcomes.
        """
        length, noise = self._turns.max_actions_per_turn, float(policy == "random")
        actions = plan(self._turns, self._turns.actions_left, length, rng, noise)
        with contextlib.suppress(NoOracleError):
            if self._turns.reply_format.think:
                return self._turns.format_reply(actions, explain(self._turns, actions, rng.spawn(1)[0]))
        return self._turns.format_reply(actions)

    def help(self) -> str:
        """How to write a reply, and the commands."""
        if self.is_over:
            return f"{_MARK}the episode is over; {_COMMANDS_IN_WORDS}"
        if isinstance(self._turns, ToolTurns):
            call = '{"name": "a tool", "arguments": {"its argument": "a value"}}'
            return f"{_MARK}type a call ({call}), or an answer in words, which ends the episode; {_COMMANDS_IN_WORDS}"
        separator = f" {self._turns.action_separator} "
        example = separator.join((self._turns.actions or ("an action",))[:2])
        return f"{_MARK}type actions ({example}) or a whole reply with its tags; {_COMMANDS_IN_WORDS}"

    def _tools(self) -> list[str]:
        """A line for each tool of the episode."""
        if not isinstance(self._turns, ToolTurns):
            return []
        found = map(Tool.of, self._turns.game.tools)
        return [f"{_MARK}{tool.signature}: {' '.join(tool.description.split())}" for tool in found]

    def _reply(self, move: str) -> str:
        if isinstance(self._turns, ToolTurns):
            return move if not self._turns.reply_format.think or THINK in move else f"{THINK}{END_THINK}{move}"
        parts = (part.strip() for part in move.split(self._turns.action_separator))
        actions = [part for part in parts if part]
        if not actions or any(tag in move for tag in TAGS):
            return move
        return self._turns.format_reply(actions)


def _verdict(success: bool) -> str:
    return "success" if success else "no success"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
