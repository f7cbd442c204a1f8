"""The measures of a rollout that the trainer does not log: actions of a turn, and how alike replies are.

RAGEN calls the loss of variety within a group the echo trap (arXiv 2504.20073, section 4.1). Each process describes its
own trajectories, which are gathered, so two processes get the numbers of one. Here are also the pairs of prompt and
thought on which the mutual information is measured.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.monitoring.mutual_information import ThoughtPair
from ragen_trl.rollout.control_tokens import END_THINK, THINK
from ragen_trl.trajectory import end_of_thought

Pieces = Callable[[int], str]
Span = tuple[int, int]
_TAG_TOKENS = 8  # a tag at the end of a prompt has at most so many tokens


def token_pieces(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """The text of single tokens, each decoded once. Tags are ASCII, so they can be found in the joined texts."""

    @cache
    def piece(token: int) -> str:
        return str(tokenizer.decode([token]))

    return piece


def rollout_measures(rollout: RolloutBatch) -> dict[str, float]:
    """``actions_per_turn`` and ``identical_replies`` of a rollout, dropped groups included, over all processes.

    Every process has to call it.
    """
    here = []  # of each trajectory the first reply's digest, and its numbers of turns and actions
    for played in rollout.trajectories:
        reply = hashlib.sha256(played.turns[0].reply.encode("utf-8", "surrogatepass")).hexdigest()
        here.append((reply, len(played.turns), sum(len(turn.info["actions"]) for turn in played.turns)))
    replies, turns, actions = zip(*rollout.in_order(gather_object(here)), strict=True)
    return {"actions_per_turn": sum(actions) / sum(turns), **identical_replies(replies, rollout.group_size)}


def identical_replies(replies: Sequence[str], group_size: int) -> dict[str, float]:
    """The mean over groups of the share of equal pairs, ``Σ_v n_v (n_v - 1) / (n (n - 1))``; nothing for groups of one.

    It is an unbiased estimate of how often two samples agree, so groups of different sizes can be compared.

    Example:
        >>> identical_replies(["Up", "Up", "Up", "Left"], group_size=4)
        {'identical_replies': 0.5}
    """
    if group_size == 1:
        return {}
    groups = [replies[first : first + group_size] for first in range(0, len(replies), group_size)]
    equal = [sum(count * (count - 1) for count in Counter(group).values()) for group in groups]
    return {"identical_replies": fmean(equal) / (group_size * (group_size - 1))}


def text_of(completion: Any) -> str:
    """The text of a completion as TRL logs it: a string, or messages, of which only the assistant's count."""
    if isinstance(completion, str):
        return completion
    spoken = [message.get("content") for message in completion if message["role"] == "assistant"]
    return "".join(text for text in spoken if isinstance(text, str))


def pairs_of_completions(micro_batches: Sequence[dict[str, Any]], pieces: Pieces) -> list[ThoughtPair]:
    """The `pair` of each row of a plain trainer's batch: TRL's ``prompt_ids`` and ``completion_ids`` with masks."""
    pairs = []
    for batch in micro_batches:
        columns = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        for prompt, prompt_mask, reply, reply_mask in zip(*(batch[name] for name in columns), strict=True):
            shown, said = prompt[prompt_mask.bool()].tolist(), reply[reply_mask.bool()].tolist()
            pairs.append(pair(tuple(shown), tuple(said), pieces))
    return pairs


def pair(prompt: tuple[int, ...], reply: tuple[int, ...], pieces: Pieces) -> ThoughtPair:
    """A prompt and the thought after it, which the prompt or a template may have opened; without one, the reply."""
    said = [pieces(token) for token in reply]
    before, closed, _ = "".join(said).partition(END_THINK)
    opened = "".join(map(pieces, prompt[-_TAG_TOKENS:])).rstrip().endswith(THINK)
    start, end = thought_span(said, opened or (bool(closed) and THINK not in before)) or (0, len(reply))
    return ThoughtPair(prompt + reply[:start], reply[start:end])


def thought_span(pieces: Sequence[str], opened: bool) -> Span | None:
    """The span of the thought in a reply: index of its first token, and of the token after its last; without tags.

    A token that holds a part of a tag is not part of the thought. A thought without an end tag ends with the last
    token. ``opened`` says that the thought began before the reply.

    Returns:
        ``None`` if there is no thought; two equal numbers if it is empty.

    Example:
        >>> thought_span(["<think>", "up", " then", "</think>", "Up"], opened=False)
        (1, 3)
        >>> thought_span(["up", "</th", "ink>"], opened=True)
        (0, 1)
    """
    text = "".join(pieces)
    if not opened and THINK not in text:
        return None
    start = 0 if opened else text.index(THINK) + len(THINK)
    end = end_of_thought(text, start)
    end = len(text) if end < 0 else end
    inside, place = [], 0
    for index, piece in enumerate(pieces):
        if piece and start <= place and place + len(piece) <= end:
            inside.append(index)
        place += len(piece)
    return (inside[0], inside[-1] + 1) if inside else (0, 0)
