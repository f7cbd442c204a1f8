"""The measures of a rollout: of whole trajectories on all processes, or of a plain trainer's texts.

Lengths, actions, and how alike the replies of a group are: RAGEN calls the loss of variety the echo trap (arXiv
2504.20073, section 4.1). Each process makes sketches of its own trajectories, which are gathered, so two processes get
the numbers of one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from ragen_trl.algorithms.filtering import group_std
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.monitoring.mutual_information import ThoughtPair
from ragen_trl.rollout.control_tokens import END_THINK, THINK
from ragen_trl.system.float64 import in_float64
from ragen_trl.trajectory import Trajectory, Turn, end_of_thought

Pieces = Callable[[int], str]
_TAG_TOKENS = 8  # a tag at the end of a prompt has at most so many tokens


def token_pieces(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """The text of single tokens, each decoded once. Tags are ASCII, so they can be found in the joined texts."""

    @cache
    def piece(token: int) -> str:
        return str(tokenizer.decode([token]))

    return piece


@dataclass(frozen=True)
class Sketch:
    """What the measures need of an episode; small enough to be sent to all processes.

    Attributes:
        first_reply: Digest of the first reply's text.
        plan: Digest of all actions, turn by turn.
        turns: Number of turns.
        actions: Number of executed actions.
        effective: Number of turns that changed the state.
        reply_tokens: Sampled tokens of all turns.
        thoughts: Number of turns with a thought.
        thought_tokens: Sampled tokens inside ``<think>``, of all turns.
    """

    first_reply: str
    plan: str
    turns: int
    actions: int
    effective: int
    reply_tokens: int
    thoughts: int
    thought_tokens: int

    @classmethod
    def of(cls, trajectory: Trajectory, pieces: Pieces) -> "Sketch":
        """The sketch of a trajectory."""
        infos = [turn.info for turn in trajectory.turns]
        spans = [span for turn in trajectory.turns if (span := _thought(turn, pieces)) is not None]
        return cls(
            first_reply=_digest(trajectory.turns[0].reply),
            plan=_digest(repr([tuple(info["actions"]) for info in infos])),
            turns=len(infos),
            actions=sum(len(info["actions"]) for info in infos),
            effective=sum(bool(info["action_is_effective"]) for info in infos),
            reply_tokens=trajectory.num_reply_tokens,
            thoughts=len(spans),
            thought_tokens=sum(end - start for start, end in spans),
        )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def rollout_measures(rollout: RolloutBatch, pieces: Pieces) -> dict[str, float]:
    """All measures of a rollout, filtered or not, over all processes; every process has to call it.

    Returns:
        ``reply_tokens``, ``actions_per_turn`` and ``effective`` (share of turns that changed the state) per turn;
        ``thought_tokens`` per thought, if there are any; and with groups ``identical_replies`` and
        ``identical_episodes`` (the share of pairs of a group with the same first reply, and with the same actions
        throughout), ``in_group_std``, and ``zero_std``, the share of groups without spread.
    """
    here = [Sketch.of(played, pieces) for played in rollout.trajectories]
    sketches, size = rollout.in_order(gather_object(here)), rollout.group_size
    turns = sum(one.turns for one in sketches)
    return {
        **_lengths(sketches),
        "actions_per_turn": sum(one.actions for one in sketches) / turns,
        "effective": sum(one.effective for one in sketches) / turns,
        **_likeness("identical_replies", [one.first_reply for one in sketches], size),
        **_likeness("identical_episodes", [one.plan for one in sketches], size),
        **_spread(rollout.returns, size),
    }


def text_measures(
    texts: Sequence[str],
    rewards: torch.Tensor,
    group_size: int,
    tokenizer: PreTrainedTokenizerBase,
    pieces: Pieces,
) -> dict[str, float]:
    """The measures of a plain trainer's completions: all about replies, nothing about actions.

    ``texts`` and ``rewards`` (weighted sums) are (P · G,), of all processes, groups contiguous. The texts are tokenized
    again, so lengths may differ by about a token from what was sampled.
    """
    sketches = []
    for text, ids in zip(texts, tokenizer(list(texts), add_special_tokens=False)["input_ids"], strict=True):
        span = _span(text, ids, False, pieces)
        start, end = span or (0, 0)
        sketches.append(Sketch(_digest(text), "", 1, 0, 0, len(ids), int(span is not None), end - start))
    return {
        **_lengths(sketches),
        **_likeness("identical_replies", [one.first_reply for one in sketches], group_size),
        **_spread(rewards, group_size),
    }


def _lengths(sketches: Sequence[Sketch]) -> dict[str, float]:
    found = {"reply_tokens": sum(one.reply_tokens for one in sketches) / sum(one.turns for one in sketches)}
    if thoughts := sum(one.thoughts for one in sketches):
        found["thought_tokens"] = sum(one.thought_tokens for one in sketches) / thoughts
    return found


def _likeness(name: str, values: Sequence[str], group_size: int) -> dict[str, float]:
    """The mean over groups of the share of equal pairs; nothing for groups of one."""
    if group_size == 1:
        return {}
    groups = [values[first : first + group_size] for first in range(0, len(values), group_size)]
    return {name: fmean(map(identical_pairs, groups))}


def identical_pairs(values: Sequence[str]) -> float:
    """Share of equal pairs: ``Σ_v n_v (n_v - 1) / (n (n - 1))``, an unbiased estimate of how often two samples agree.

    Unlike the share of the most frequent value, it can be compared between groups of different sizes, of at least 2.

    Example:
        >>> identical_pairs(["Up", "Up", "Up", "Left"])
        0.5
    """
    size = len(values)
    return sum(count * (count - 1) for count in Counter(values).values()) / (size * (size - 1))


def _spread(returns: torch.Tensor, group_size: int) -> dict[str, float]:
    if group_size == 1:
        return {}
    stds = group_std(returns, group_size)
    return {"in_group_std": stds.mean().item(), "zero_std": in_float64(stds == 0).mean().item()}


def text_of(completion: Any) -> str:
    """The text of a completion as TRL logs it: a string, or messages, of which only the assistant's count."""
    if isinstance(completion, str):
        return completion
    spoken = [message.get("content") for message in completion if message["role"] == "assistant"]
    return "".join(text for text in spoken if isinstance(text, str))


def pairs_of_trajectories(trajectories: Sequence[Trajectory], pieces: Pieces) -> list[ThoughtPair]:
    """First prompts and the thoughts after them; the whole reply where nothing is marked as a thought."""
    firsts = [played.turns[0] for played in trajectories]
    return [_pair(turn.prompt_ids, turn.reply_ids, _thought(turn, pieces)) for turn in firsts]


def pairs_of_completions(micro_batches: Sequence[dict[str, Any]], pieces: Pieces) -> list[ThoughtPair]:
    """The same from a plain trainer's batch: TRL's ``prompt_ids`` and ``completion_ids`` with their masks."""
    pairs = []
    for batch in micro_batches:
        columns = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        for prompt, prompt_mask, reply, reply_mask in zip(*(batch[name] for name in columns), strict=True):
            shown = tuple(prompt[prompt_mask.bool()].tolist())
            said = tuple(reply[reply_mask.bool()].tolist())
            text = "".join(map(pieces, said))
            pairs.append(_pair(shown, said, _span(text, said, _opened(shown, pieces), pieces)))
    return pairs


def _pair(prompt: tuple[int, ...], reply: tuple[int, ...], span: tuple[int, int] | None) -> ThoughtPair:
    start, end = (0, len(reply)) if span is None else span
    return ThoughtPair(prompt + reply[:start], reply[start:end])


def _thought(turn: Turn, pieces: Pieces) -> tuple[int, int] | None:
    return _span(turn.reply, turn.reply_ids, _opened(turn.prompt_ids, pieces), pieces)


def _opened(prompt: Sequence[int], pieces: Pieces) -> bool:
    return "".join(map(pieces, prompt[-_TAG_TOKENS:])).rstrip().endswith(THINK)


def _span(text: str, ids: Sequence[int], opened: bool, pieces: Pieces) -> tuple[int, int] | None:
    """The span of the thought. A reply that closes a thought without opening it began inside one."""
    if not opened and THINK not in text and END_THINK not in text:
        return None
    said = [pieces(token) for token in ids]
    before, closed, _ = "".join(said).partition(END_THINK)
    return thought_span(said, opened or (bool(closed) and THINK not in before))


def thought_span(pieces: Sequence[str], opened: bool) -> tuple[int, int] | None:
    """The span of the thought in a reply: index of its first token, and of the token after its last; without tags.

    A token that holds a part of a tag is not part of the thought. A thought without an end tag ends with the last
    token. ``opened`` says that the prompt ended with ``<think>``.

    Returns:
        ``None`` if there is no thought; two equal numbers if it is empty.

    Example:
        >>> thought_span(["<think>", "up", " then", "</think>", "Up"], opened=False)
        (1, 3)
        >>> thought_span(["up", "</th", "ink>"], opened=True)
        (0, 1)
        >>> thought_span(["Up"], opened=False) is None
        True
    """
    text = "".join(pieces)
    start = 0
    if not opened:
        found = text.find(THINK)
        if found < 0:
            return None
        start = found + len(THINK)
    end = end_of_thought(text, start)
    end = len(text) if end < 0 else end
    inside, place = [], 0
    for index, piece in enumerate(pieces):
        if piece and start <= place and place + len(piece) <= end:
            inside.append(index)
        place += len(piece)
    return (inside[0], inside[-1] + 1) if inside else (0, 0)
