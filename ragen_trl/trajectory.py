"""One played episode as data: what the policy was shown, what it sampled, and what that earned.

Token ids are stored exactly as they went through the model. The loss mask and the turn spans follow from that
structure; they are never guessed from text, rewards or a model's name.
"""

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_THOUGHT_TO_REST = re.compile(r"</think>(?=\s*<(?:answer|tool_call)>)")


def end_of_thought(text: str, start: int = 0) -> int:
    """Where a thought that begins at ``start`` ends: the place of the end tag that an answer or a call follows.

    Environments read it the same way. Without an answer or a call it ends at the first ``</think>``; else -1.

    Example:
        >>> end_of_thought("up</think> or not</think> <answer>Up</answer>")
        17
    """
    found = _THOUGHT_TO_REST.search(text, start)
    return found.start() if found else text.find("</think>", start)


@dataclass(frozen=True)
class Picture:
    """A picture that a policy was shown: height · width · 3 bytes of RGB, row by row; equal ones have equal pixels."""

    height: int
    width: int
    pixels: bytes = field(repr=False)


@dataclass(frozen=True)
class Turn:
    """One exchange: tokens that the environment appended, then tokens that the policy sampled.

    Attributes:
        prompt_ids: Tokens appended before the reply: the end of the previous turn, the template's headers, the
            observation and a forced reply prefix. Never trained.
        reply_ids: Sampled tokens, the end-of-turn token included. Exactly these are trained.
        logprobs: Log-probability (nats) of each reply token under the sampling temperature; ``()`` if the policy gives
            none (scripted play).
        observation: The user message that the policy answered.
        reply: The reply as the environment read it, forced prefix included.
        reward: Reward of the turn, format penalty included.
        info: ``info`` of the environment's step.
        cut: Whether the reply ran into the token limit.
        state: The environment's own observation in that message, without turn numbers and limits.
        context_ids: All that the model read before ``prompt_ids``, if the context was rebuilt (a sliding window). Never
            trained. ``None`` if the model read the whole trajectory up to here, as before the first turn.
        pictures: Pictures of that message. Their tokens are among ``prompt_ids``, in this order.
        opening: That message as the first of a conversation; only where contexts are rebuilt.
        oracle_ids: What an oracle would have replied, in tokens; ``()`` if none was asked. It played no part.

    Raises:
        ValueError: If ``logprobs`` is neither empty nor as long as ``reply_ids``.
    """

    prompt_ids: tuple[int, ...]
    reply_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    observation: str
    reply: str
    reward: float
    info: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False
    state: str = ""
    context_ids: tuple[int, ...] | None = None
    pictures: tuple[Picture, ...] = ()
    opening: str = field(default="", compare=False)
    oracle_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.logprobs and len(self.logprobs) != len(self.reply_ids):
            raise ValueError(f"{len(self.logprobs)} log-probabilities for {len(self.reply_ids)} reply tokens")

    @property
    def thought(self) -> str:
        """The text between the tags of the reply's thought (`end_of_thought`), "" if there is none.

        Example:
            >>> reply = "<think>The goal is below, so Down.</think><answer>Down</answer>"
            >>> Turn((), (), (), observation="?", reply=reply, reward=0.0).thought
            'The goal is below, so Down.'
        """
        before, opened, inside = self.reply.partition("<think>")
        rest = inside if opened else before
        end = end_of_thought(rest)
        return rest[:end] if end >= 0 else rest if opened else ""


@dataclass(frozen=True)
class Trajectory:
    """A whole episode.

    Attributes:
        turns: At least one turn, in order.
        seed: Seed of the start state.
        outcome_seed: Seed of the outcomes; ``None`` if ``seed`` fixes them too.
        terminated: The task ended (Gymnasium's meaning).
        truncated: A limit or a failure ended the episode.
        limit: Which limit (``"turns"``, ``"actions"``, ``"env"``, ``"context"``) or what failed (``"crash"`` or
            ``"timeout"`` of the environment, ``"error"`` of the policy); ``""`` for neither. See ``rollout/loop.py``.
        next_prompt_ids: The tokens before the next reply of a truncated episode, from which a critic values the rest.
            ``()`` after the task's end, or if the policy has no tokens.
        next_context_ids: All that the model would have read before ``next_prompt_ids``, if that context would have been
            rebuilt; ``None`` if it would have read the last segment.

    Example:
        >>> turn = Turn((1, 2), (3, 4), (), observation="?", reply="!", reward=0.5)
        >>> episode = Trajectory((turn, turn), seed=0, terminated=True)
        >>> episode.token_ids
        (1, 2, 3, 4, 1, 2, 3, 4)
        >>> episode.action_mask
        (0, 0, 1, 1, 0, 0, 1, 1)
        >>> episode.turn_ids
        (-1, -1, 0, 0, -1, -1, 1, 1)
        >>> episode.episode_return
        1.0
    """

    turns: tuple[Turn, ...]
    seed: int
    outcome_seed: int | None = None
    terminated: bool = False
    truncated: bool = False
    limit: str = ""
    next_prompt_ids: tuple[int, ...] = ()
    next_context_ids: tuple[int, ...] | None = None

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of the turn rewards, format penalties included."""
        return sum(turn.reward for turn in self.turns)

    @property
    def success(self) -> bool:
        """``info["success"]`` after the last turn; NaN is no success."""
        found = self.turns[-1].info.get("success", False)
        return bool(found) and bool(found == found)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures whose tokens are among ``token_ids``, in their order."""
        return tuple(picture for turn in self.turns for picture in turn.pictures)

    @property
    def num_reply_tokens(self) -> int:
        """How many tokens were sampled, over all turns."""
        return sum(len(turn.reply_ids) for turn in self.turns)

    @property
    def segments(self) -> tuple["Trajectory", ...]:
        """The token sequences that the model read: the longest runs of turns whose context only grew.

        Each is a trajectory whose first prompt is its whole context. Together they hold every sampled token once. An
        episode with one growing context has one segment, itself.
        """
        starts = [0, *(place for place, turn in enumerate(self.turns) if turn.context_ids is not None)]
        if len(starts) == 1:
            return (self,)
        runs = [self.turns[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
        closed = replace(self, next_prompt_ids=(), next_context_ids=None)
        firsts = [
            replace(run[0], prompt_ids=(*(run[0].context_ids or ()), *run[0].prompt_ids), context_ids=None)
            for run in runs
        ]
        return tuple(replace(closed, turns=(first, *run[1:])) for first, run in zip(firsts, runs, strict=True))

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens in order, length T; with rebuilt contexts the model read the `segments` instead."""
        return tuple(token for turn in self.turns for token in (*turn.prompt_ids, *turn.reply_ids))

    @property
    def turn_ids(self) -> tuple[int, ...]:
        """Turn index at sampled tokens, -1 at environment tokens, length T."""
        ids: list[int] = []
        for index, turn in enumerate(self.turns):
            ids += [-1] * len(turn.prompt_ids) + [index] * len(turn.reply_ids)
        return tuple(ids)

    @property
    def action_mask(self) -> tuple[int, ...]:
        """1 at sampled tokens, 0 at environment tokens, length T."""
        return tuple(int(turn >= 0) for turn in self.turn_ids)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Log-probability (nats) of each sampled token, 0 at environment tokens and where there is none, length T."""
        values: list[float] = []
        for turn in self.turns:
            values += [0.0] * len(turn.prompt_ids) + list(turn.logprobs or [0.0] * len(turn.reply_ids))
        return tuple(values)


def sendable(trajectory: Trajectory) -> Trajectory:
    """The trajectory without entries of ``info`` that cannot go to another process, such as a lock."""
    kept = ({key: value for key, value in turn.info.items() if _can_be_sent(value)} for turn in trajectory.turns)
    turns = (replace(turn, info=info) for turn, info in zip(trajectory.turns, kept, strict=True))
    return replace(trajectory, turns=tuple(turns))


def _can_be_sent(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # whatever the value's own methods raise
        return False
    return True
