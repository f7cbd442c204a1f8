"""What a rollout needs of an environment and of a policy, and what they say to each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat

import numpy as np

from ragen_trl.rollout.env_executor import Failure
from ragen_trl.trajectory import Picture, Turn

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


class TurnEnv(Protocol):
    """What a rollout needs of an environment: ``ragen_envs.AgentTurns``, or any object with these two methods."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. Returns the first user message and ``info``.

        A message is a text, or a dict of a "text" and an "image", uint8 of shape (height, width, 3).
        """

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one reply. Returns the next user message, reward, terminated, truncated, ``info``."""


Renew = Callable[[TurnEnv, Failure], TurnEnv]
"""Makes an environment to play instead of one that failed and is not used again."""


@dataclass(frozen=True)
class Start:
    """How one episode starts: the seeds of the start state, of the outcomes, and of the policy's sampling.

    ``options`` go to the environment's ``reset``, in a ``TextEnv`` those that its ``option_names`` has.
    """

    seed: int
    outcome_seed: int | None = None
    sampling_seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def drawn(cls, seed: int, entropy: Sequence[int], options: Mapping[str, Any] | None = None) -> "Start":
        """The start state of ``seed``, with an outcome seed and a sampling seed that ``entropy`` fixes."""
        outcome_seed, sampling_seed = np.random.SeedSequence(entropy).generate_state(2).tolist()
        return cls(seed, outcome_seed, sampling_seed, options or {})


@dataclass(frozen=True)
class Request:
    """One row's request for a reply. A row is one episode of the rollout, whose context the policy keeps."""

    row: int  # index of the episode in this rollout
    observation: str  # the user message to answer
    new_ids: tuple[int, ...]  # tokens to append to the row's context before sampling; () for a policy that reads text
    env: TurnEnv  # for scripted policies; a learned policy must not look at it
    room: int | None = None  # tokens that the budgets leave for the reply
    context_ids: tuple[int, ...] | None = None  # tokens to read instead of the row's context, if that was built again
    pictures: tuple[Picture, ...] = ()  # of the user message; their tokens are among new_ids
    turns: tuple[Turn, ...] = ()  # of the episode so far

    @property
    def context(self) -> list[int]:
        """All tokens that the model reads before this reply."""
        return [*(tokens_read(self.turns) if self.context_ids is None else self.context_ids), *self.new_ids]

    def max_tokens(self, per_reply: int) -> int:
        """Tokens that the reply may have, if every reply may have ``per_reply``."""
        return per_reply if self.room is None else min(per_reply, self.room)


def tokens_read(turns: Sequence[Turn]) -> list[int]:
    """All tokens in a model's context after these turns: since it was last built again, replies included."""
    ids: list[int] = []
    for turn in turns:
        if turn.context_ids is not None:
            ids = list(turn.context_ids)
        ids += (*turn.prompt_ids, *turn.reply_ids)
    return ids


@dataclass(frozen=True)
class Reply:
    """What the policy answered; with ``error``, why a server gave no answer, and the other fields mean nothing."""

    text: str  # what the environment reads
    ids: tuple[int, ...] = ()  # tokens for training; () for a policy without tokens
    logprobs: tuple[float, ...] = ()  # of the ids
    cut: bool = False  # whether a token limit ended the reply
    error: str | None = None
    oracle_ids: tuple[int, ...] = ()  # what an oracle would have answered, if one was asked


class Policy:
    """Anything that answers user messages.

    Attributes:
        chat: Turns messages into token ids; ``None`` for a policy that only reads and writes text.
        max_context: Number of tokens that its model can attend to, or ``None`` for no limit.
    """

    chat: "Chat | None" = None
    max_context: int | None = None

    def begin(self, seeds: Sequence[int]) -> None:
        """Forget everything and start ``len(seeds)`` empty contexts, each with its own sampling seed."""

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer a batch of requests, in order."""
        raise NotImplementedError

    def end(self, rows: Sequence[int]) -> None:
        """Drop these rows: they are finished and will not ask again."""

    def goes_on(self, playing: bool) -> bool:
        """Whether another turn is needed, given whether any row of this process still plays.

        A policy whose replies need all processes at once answers for all; those that are done `reply` to no request.
        """
        return playing
