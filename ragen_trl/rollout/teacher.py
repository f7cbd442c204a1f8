"""An oracle that says, at every turn of another policy's episodes, what it would have replied there.

An oracle that only shows its own episodes says nothing about the states that a model gets itself into. Ours knows the
best action in any state, so it can be asked wherever the model is.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ragen_envs import AgentTurns, NoOracleError, ToolTurns, demonstration, explain
from ragen_trl.config.options import PlayOptions
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.interfaces import Policy, Reply, Request, TurnEnv, tokens_read
from ragen_trl.trajectory import Trajectory, Turn

logger = logging.getLogger(__name__)


class Teacher:
    """Writes an oracle's reply in the present state of an environment, with a probability of mistakes.

    Where replies have thoughts, `ragen_envs.explain` gives them. A thought stays empty in an environment that explains
    nothing, and in a reply that would be longer than ``max_reply_length`` tokens with it.
    """

    def __init__(self, args: PlayOptions, chat: Chat, actions: int, noise: float = 0.0) -> None:
        self._args, self.chat, self._noise = args, chat, noise
        self._actions = min(args.max_actions_per_turn, actions)

    def __call__(self, turns: TurnEnv, random: np.random.Generator) -> str:
        """The reply; ``random`` draws mistakes, imagined outcomes and words."""
        assert isinstance(turns, AgentTurns)
        if isinstance(turns, ToolTurns):  # written as the model's template writes calls
            turns.call_format = self.chat.call_format
        actions = demonstration(turns, turns.actions_left, self._actions, random, self._noise)
        reply = turns.format_reply(actions)
        if not turns.reply_format.think:
            return reply
        with suppress(NoOracleError):
            explained = turns.format_reply(actions, explain(turns, actions, random.spawn(1)[0]))
            if len(self.chat.encode_reply(explained)) <= self._args.max_reply_length:
                return explained
        return reply


class Listening(Policy):
    """Another policy, whose replies a subclass listens to."""

    def __init__(self, player: Policy) -> None:
        self._player = player
        self.chat, self.max_context = player.chat, player.max_context

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._player.begin(seeds)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`."""
        return self._player.reply(requests)

    def end(self, rows: Sequence[int]) -> None:
        """As `Policy.end`."""
        self._player.end(rows)

    def goes_on(self, playing: bool) -> bool:
        """As `Policy.goes_on`."""
        return self._player.goes_on(playing)


class Taught(Listening):
    """A policy that plays while a teacher writes, at each of its turns, what it should have replied (``oracle_ids``).

    There is none where it is longer than the room for a reply, as the model could not have written it, or where the
    environment's oracle fails.
    """

    def __init__(self, player: Policy, teacher: Teacher) -> None:
        super().__init__(player)
        self._teacher, self._failed = teacher, False
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        super().begin(seeds)
        self._random = [np.random.default_rng(seed) for seed in seeds]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`; the teacher answers in the state that the player's reply will change."""
        replies = []
        for request, reply in zip(requests, super().reply(requests), strict=True):
            ids = self._written(request)
            fits = request.room is None or len(ids) <= request.room
            replies.append(replace(reply, oracle_ids=tuple(ids) if fits else ()))
        return replies

    def _written(self, request: Request) -> list[int]:
        try:
            return self._teacher.chat.encode_reply(self._teacher(request.env, self._random[request.row]))
        except NoOracleError:
            raise
        except Exception:  # whatever a user's environment raises; the episode itself goes on
            if not self._failed:
                logger.exception("an oracle failed; it teaches nothing where it does")
            self._failed = True
            return []


def corrections(trajectory: Trajectory) -> list[Trajectory]:
    """The oracle's replies in an episode, each as an episode of one turn: after all that the model had read there.

    There is none where the environment failed.
    """
    found: list[Trajectory] = []
    for number, turn in enumerate(trajectory.turns if trajectory.limit not in FAILURES else ()):
        if turn.oracle_ids:
            read = tokens_read(trajectory.turns[:number]) if turn.context_ids is None else turn.context_ids
            context = (*read, *turn.prompt_ids)
            seen = tuple(picture for one in trajectory.turns[: number + 1] for picture in one.pictures)
            told = Turn(context, turn.oracle_ids, (), turn.observation, "", 0.0, pictures=seen)
            found.append(Trajectory((told,), trajectory.seed))
    return found
