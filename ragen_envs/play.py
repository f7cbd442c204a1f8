"""Play an environment by hand or watch a policy, in exactly the messages of `AgentTurns` or `ToolTurns`.

A seed gives the same episode as in the baselines.
"""

import contextlib
import time
from collections.abc import Callable

import numpy as np

from ragen_envs.baselines import POLICIES, episode_seeds
from ragen_envs.calling import Tool, ToolTurns
from ragen_envs.oracles import explain, plan
from ragen_envs.reply_format import END_THINK, SEPARATOR, TAGS, THINK
from ragen_envs.text_env import NoOracleError
from ragen_envs.turns import AgentTurns

_MARK = "-- "  # before every line that a model does not see
_HELP = f"{_MARK}type actions or a whole reply (a tool's call as JSON); r: next seed, h: help, q: quit"


class Game:
    """A game in the messages that a model gets. A model never sees the lines that start with ``--``.

    Tools are named in such lines, because a model sees them in the words of its own chat template.

    Args:
        turns: The environment.
        name: Its name in titles.
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
        """Takes a turn; returns the next message.

        Args:
            move: A whole reply with tags, or only actions, which are written as a reply. With tools: a reply as it
                is; an empty thought is added where there must be one.
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
            counts = f"return {self._return:g}, {_count(self._actions, 'action')} in {_count(info['turn'], 'turn')}"
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


def play(game: Game, read_line: Callable[[], str | None], show: Callable[[str], None], seed: int) -> None:
    """Plays episode after episode, each with the next seed, until the player quits.

    A line is a command unless an action has that name.

    Args:
        game: What is played.
        read_line: Waits for a line; returns None at the end of the input.
        show: Takes each text to display.
        seed: Seed of the first episode, 0 or more.
    """
    show(game.begin(seed))
    while (line := read_line()) is not None:
        line = line.strip()
        names = () if game.is_over else map(str.casefold, game.turns.actions or ())
        command = "" if line.casefold() in names else line.casefold()
        if command == "q":
            return
        if command == "r":
            seed += 1
            show(game.begin(seed))
        elif line:
            show(_HELP if command == "h" or game.is_over else game.take(line))


def watch(game: Game, policy: str, show: Callable[[str], None], seed: int, delay: float) -> None:
    """Shows one episode of a policy, with so many seconds before each move."""
    rng = np.random.default_rng(episode_seeds(seed)[1])
    show(game.begin(seed))
    while not game.is_over:
        time.sleep(delay)
        reply = game.suggest(policy, rng)
        show(f"> {reply}")
        show(game.take(reply))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
