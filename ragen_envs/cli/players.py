"""The players of `games.play`: a person with single keys, a person or a pipe with lines of text, or a policy."""

import time
from collections.abc import Callable

import numpy as np

from ragen_envs.baselines import episode_seeds
from ragen_envs.cli.games import COMMANDS, Command, Game, Moves, Replies, Show


class KeyPlayer:
    """A person at the keyboard.

    Args:
        read_key: Waits for a key and returns its name; "" at the end of the input.
    """

    def __init__(self, read_key: Callable[[], str]) -> None:
        """Takes the source of keys."""
        self._read_key = read_key

    def decide(self, game: Game) -> str | Command:
        """The move or command of the next key that has a meaning."""
        assert isinstance(game, Moves)
        while True:
            key = self._read_key()
            if key == "":
                return Command.QUIT
            if not game.is_over and key in game.bindings():
                return game.bindings()[key]
            if key in COMMANDS:
                return COMMANDS[key]


class LinePlayer:
    """A person or a pipe that writes lines. The end of the input quits.

    Args:
        read_line: Waits for a line; None at the end of the input.
    """

    def __init__(self, read_line: Callable[[], str | None]) -> None:
        """Takes the source of lines."""
        self._read_line = read_line

    def decide(self, game: Game) -> str | Command:
        """The next line that is not blank. It is a command, unless an action has that name."""
        assert isinstance(game, Replies)
        while True:
            line = self._read_line()
            if line is None:
                return Command.QUIT
            line = line.strip()
            if line.casefold() in COMMANDS and (game.is_over or not game.is_action(line)):
                return COMMANDS[line.casefold()]
            if line:
                return Command.HELP if game.is_over else line


class PolicyPlayer:
    """A policy, for one episode.

    Args:
        policy: A key of `POLICIES`.
        seed: The episode's seed, which also fixes the sampling seed.
        delay: Seconds before each move.
        show: Takes each move to display; None if the game shows it anyway.
    """

    def __init__(self, policy: str, seed: int, delay: float = 0.0, show: Show | None = None) -> None:
        """Takes the policy; the arguments are described in the class docstring."""
        self._policy = policy
        self._rng = np.random.default_rng(episode_seeds(seed)[1])
        self._delay = delay
        self._show = show

    def decide(self, game: Game) -> str | Command:
        """The policy's move; quits at the end of the episode."""
        if game.is_over:
            return Command.QUIT
        time.sleep(self._delay)
        move = game.suggest(self._policy, self._rng)
        if self._show is not None:
            self._show(f"> {move}")
        return move
