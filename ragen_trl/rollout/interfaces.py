"""What a rollout is made of: what it needs of an environment and of a policy, and what they say to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat

import numpy as np

from ragen_trl.rollout.env_executor import Failure

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


class TurnEnv(Protocol):
    """What a rollout needs of an environment: ``ragen_envs.AgentTurns``, or anything with its two methods."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; returns the first user message and ``info``."""

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one reply; returns the next user message, reward, terminated, truncated, ``info``."""


@dataclass(frozen=True)
class Request:
    """One row's demand for a reply.

    Attributes:
        row: Index of the episode in this rollout; the policy keeps that row's context between requests.
        observation: The user message to answer.
        new_ids: Tokens to append to the row's context before sampling; ``()`` for a policy that reads text.
        env: The environment itself, for scripted policies. A learned policy must not look at it.
        room: Tokens that the budgets leave for the reply, or ``None`` for no limit.
        context_ids: All that is to be read before ``new_ids`` in the place of the row's context, where a sliding window
            has left turns behind; ``None`` otherwise.
    """

    row: int
    observation: str
    new_ids: tuple[int, ...]
    env: TurnEnv
    room: int | None = None
    context_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Reply:
    """What the policy answered.

    Attributes:
        text: For the environment.
        ids: Token ids for training; ``()`` for a policy without tokens.
        logprobs: Of ``ids``.
        cut: Whether a limit of tokens ended it.
        error: Why there is no reply, of a policy that asks others and got no answer; the rest is then of no account.
    """

    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    cut: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Penalties:
    """Added to the reward of a turn, beside what the environment pays.

    Attributes:
        cut: If the reply was cut by a limit of tokens.
        failure: If the environment crashed or ran over its time limit. -2 is below what honest failures cost in the
            environments of `ragen_envs` under the default limits, so that no policy gains by bringing one down.
    """

    cut: float = 0.0
    failure: float = -2.0


Renew = Callable[[TurnEnv, Failure], TurnEnv]
"""Makes an environment to play in the place of one that failed and is not used again."""


class Policy(Protocol):
    """Anything that answers user messages; inherit from it to have `goes_on`.

    Attributes:
        chat: Turns messages into token ids; ``None`` for a policy that only reads and writes text.
        max_context: Tokens its model can attend to, or ``None``.
    """

    chat: "Chat | None"
    max_context: int | None

    def begin(self, seeds: Sequence[int]) -> None:
        """Forget everything; start ``len(seeds)`` empty contexts, each with its own sampling seed."""

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer a batch of requests, in order."""

    def end(self, rows: Sequence[int]) -> None:
        """These rows are finished and will not ask again."""

    def goes_on(self, playing: bool) -> bool:
        """Whether another turn is due, given whether any row of this process still plays.

        A policy whose replies take all processes together answers for all of them, and is then asked for replies to
        no requests where everything is over already. This one answers for itself.
        """
        return playing


@dataclass(frozen=True)
class Start:
    """How one episode starts: the start state, the outcomes, and the policy's own dice."""

    seed: int
    outcome_seed: int | None = None
    sampling_seed: int = 0

    @classmethod
    def drawn(cls, seed: int, entropy: Sequence[int]) -> "Start":
        """The start state of ``seed``, with outcomes and sampling that ``entropy`` fixes."""
        return cls(seed, *np.random.SeedSequence(entropy).generate_state(2).tolist())
