"""Play episodes: environments on one side, a policy on the other, whole trajectories out. No torch here.

Turns are taken in step: all unfinished rows ask the policy together, and rows that finish leave. Nothing is gathered
across processes here; a policy that must do so says how long (`Policy.goes_on`), so that ranks with different numbers
of turns cannot hang one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat

import numpy as np

from ragen_trl.errors import UserError
from ragen_trl.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from ragen_trl.chat import Chat


class ContextTooShortError(UserError, ValueError):
    """The first prompt alone fills the context."""


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
    """

    row: int
    observation: str
    new_ids: tuple[int, ...]
    env: TurnEnv
    room: int | None = None


@dataclass(frozen=True)
class Reply:
    """What the policy answered: text for the environment, token ids and log-probabilities for training."""

    text: str
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    cut: bool = False


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


@dataclass
class _Episode:
    """An episode in progress."""

    start: Start
    env: TurnEnv
    observation: str
    state: str
    turns: list[Turn] = field(default_factory=list)
    length: int = 0
    done: dict[str, Any] | None = None

    def finish(self, terminated: bool, truncated: bool, limit: str) -> None:
        self.done = {"terminated": terminated, "truncated": truncated, "limit": limit}

    def request(self, row: int, policy: Policy, max_length: int | None) -> Request:
        new_ids = self.next_ids(policy.chat)
        length = self.length + len(new_ids)
        rooms = [] if policy.max_context is None else [policy.max_context - length]
        if max_length is not None:
            first = len(self.turns[0].prompt_ids) if self.turns else len(new_ids)
            rooms.append(max_length - (length - first))
        return Request(row, self.observation, new_ids, self.env, min(rooms, default=None))

    def next_ids(self, chat: "Chat | None") -> tuple[int, ...]:
        if chat is None:
            return ()
        if not self.turns:
            return tuple(chat.start(self.observation))
        last = self.turns[-1]
        return tuple(chat.extend((last.reply_ids or last.prompt_ids)[-1], self.observation))


def play(
    envs: Sequence[TurnEnv], policy: Policy, starts: Sequence[Start], max_length: int | None = None
) -> list[Trajectory]:
    """Play one episode in each environment.

    Args:
        envs: One environment per episode.
        policy: Answers the user messages.
        starts: One start per episode.
        max_length: Tokens a trajectory may have after its first prompt. An episode whose next prompt would leave no
            room for a reply, here or in the model's context, ends truncated with ``limit="context"``; a reply that
            would run over is cut.

    Returns:
        One trajectory per environment, in order.

    Raises:
        ValueError: If the numbers of environments and starts differ.
        ContextTooShortError: If a first prompt alone fills the context.
    """
    if len(envs) != len(starts):
        raise ValueError(f"{len(envs)} environments for {len(starts)} starts; give one start per environment")
    episodes = [_reset(env, start) for env, start in zip(envs, starts, strict=True)]
    policy.begin([start.sampling_seed for start in starts])
    playing = list(range(len(episodes)))
    while policy.goes_on(bool(playing)):
        requests = []
        for row in playing:
            request = episodes[row].request(row, policy, max_length)
            if request.room is None or request.room > 0:
                requests.append(request)
            else:
                _end_without_room(episodes[row], request, policy.max_context)
        for request, reply in zip(requests, policy.reply(requests), strict=True):
            _take_turn(episodes[request.row], request, reply)
        policy.end([row for row in playing if episodes[row].done is not None])
        playing = [row for row in playing if episodes[row].done is None]
    return [_trajectory(episode, policy) for episode in episodes]


def _reset(env: TurnEnv, start: Start) -> _Episode:
    options = None if start.outcome_seed is None else {"outcome_seed": start.outcome_seed}
    observation, info = env.reset(seed=start.seed, options=options)
    return _Episode(start, env, observation, _state(info, observation))


def _state(info: dict[str, Any], observation: str) -> str:
    """The environment's own observation, as ``AgentTurns`` reports it, or all that was shown."""
    return str(info.get("state", observation))


def _take_turn(episode: _Episode, request: Request, reply: Reply) -> None:
    observation, reward, terminated, truncated, info = episode.env.step(reply.text)
    turn = Turn(
        prompt_ids=request.new_ids,
        reply_ids=reply.ids,
        logprobs=reply.logprobs,
        observation=request.observation,
        reply=reply.text,
        reward=float(reward),
        info=dict(info),
        cut=reply.cut,
        state=episode.state,
    )
    episode.turns.append(turn)
    episode.length += len(request.new_ids) + len(reply.ids)
    episode.observation, episode.state = observation, _state(info, observation)
    if terminated or truncated:
        episode.finish(terminated, truncated, str(info.get("limit", "")))


def _end_without_room(episode: _Episode, request: Request, max_context: int | None) -> None:
    if not episode.turns:
        raise ContextTooShortError(
            f"the first prompt has {len(request.new_ids)} tokens and leaves no room for a reply (model's context: "
            f"{max_context}); shorten the instruction, raise max_completion_length, or take another model"
        )
    episode.finish(terminated=False, truncated=True, limit="context")


def _trajectory(episode: _Episode, policy: Policy) -> Trajectory:
    assert episode.done is not None
    following = episode.next_ids(policy.chat) if episode.done["truncated"] and not episode.done["terminated"] else ()
    room = None if policy.max_context is None else max(0, policy.max_context - episode.length)
    return Trajectory(
        turns=tuple(episode.turns),
        seed=episode.start.seed,
        outcome_seed=episode.start.outcome_seed,
        next_prompt_ids=following[:room],
        **episode.done,
    )
