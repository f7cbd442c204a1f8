"""The measures of a rollout: of whole trajectories on all processes, or of a plain trainer's texts.

Each process makes sketches of its own trajectories, which are gathered with distinct n-grams once each, so two
processes get the numbers of one.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from ragen_trl.algorithms.filtering import group_std
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.monitoring.mutual_information import ThoughtPair
from ragen_trl.monitoring.reply_measures import (
    Sketch,
    digest,
    distinct_ngrams,
    echo_measures,
    episode_measures,
    ngram_codes,
    sketch,
    thought_span,
)
from ragen_trl.rollout.control_tokens import END_THINK, THINK
from ragen_trl.system.float64 import in_float64
from ragen_trl.trajectory import Trajectory, Turn

Pieces = Callable[[int], str]
_TAG_TOKENS = 8  # a tag at the end of a prompt has at most so many tokens


def token_pieces(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """The text of single tokens, each decoded once. Tags are ASCII, so they can be found in the joined texts."""

    @cache
    def piece(token: int) -> str:
        return str(tokenizer.decode([token]))

    return piece


def rollout_measures(rollout: RolloutBatch, pieces: Pieces) -> dict[str, float]:
    """All measures of a rollout, filtered or not, over all processes; every process has to call it.

    Returns:
        Those of `reply_measures.episode_measures` and ``echo_measures``; ``distinct_1`` to ``distinct_3``; the same
        of thoughts, as ``thought_distinct_1`` to ``thought_distinct_3``, where there are any; and with groups
        ``in_group_std`` and ``zero_std``, the share of groups without spread.
    """
    here, replies, thoughts = [], [], []
    for played in rollout.trajectories:
        said = [_thought_ids(turn, pieces) for turn in played.turns]
        here.append(sketch(played, [None if ids is None else len(ids) for ids in said]))
        replies += [turn.reply_ids for turn in played.turns]
        thoughts += [ids for ids in said if ids is not None]
    sketches = rollout.in_order(gather_object(here))
    size = rollout.group_size
    return {
        **episode_measures(sketches),
        **echo_measures(sketches, size),
        **_distinct_everywhere({"distinct": replies, "thought_distinct": thoughts}),
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
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    sketches, thoughts = [], []
    for text, tokens in zip(texts, ids, strict=True):
        span = _span(text, tokens, False, pieces)
        said = [] if span is None else tokens[slice(*span)]
        sketches.append(Sketch(digest(text), digest(text), "", 1, 0, 0, len(tokens), int(span is not None), len(said)))
        thoughts.append(said)
    found = {**episode_measures(sketches), **echo_measures(sketches, group_size)}
    of_replies = ("reply_tokens", "thought_tokens", "identical_replies")
    return {
        **{name: found[name] for name in of_replies if name in found},
        **{f"distinct_{n}": distinct_ngrams(ids, n) for n in (1, 2, 3)},
        **({f"thought_distinct_{n}": distinct_ngrams(thoughts, n) for n in (1, 2, 3)} if any(thoughts) else {}),
        **_spread(rewards, group_size),
    }


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


def _thought_ids(turn: Turn, pieces: Pieces) -> tuple[int, ...] | None:
    span = _thought(turn, pieces)
    return None if span is None else turn.reply_ids[slice(*span)]


def _opened(prompt: Sequence[int], pieces: Pieces) -> bool:
    return "".join(map(pieces, prompt[-_TAG_TOKENS:])).rstrip().endswith(THINK)


def _span(text: str, ids: Sequence[int], opened: bool, pieces: Pieces) -> tuple[int, int] | None:
    """The span of the thought. A reply that closes a thought without opening it began inside one."""
    if not opened and THINK not in text and END_THINK not in text:
        return None
    said = [pieces(token) for token in ids]
    before, closed, _ = "".join(said).partition(END_THINK)
    return thought_span(said, opened or (bool(closed) and THINK not in before))


def _distinct_everywhere(kinds: dict[str, list[tuple[int, ...]]]) -> dict[str, float]:
    """Distinct n-grams over the texts of all processes, for each kind of text that anybody has tokens of."""
    everyone = gather_object([{(kind, n): ngram_codes(kinds[kind], n) for kind in kinds for n in (1, 2, 3)}])
    found = {}
    for kind, n in everyone[0]:
        codes = [of_process[kind, n] for of_process in everyone]
        total = sum(count for _, count in codes)
        distinct = reduce(np.union1d, [unique for unique, _ in codes])
        if total or kind == "distinct":
            found[f"{kind}_{n}"] = len(distinct) / total if total else 1.0
    return found


def _spread(returns: torch.Tensor, group_size: int) -> dict[str, float]:
    if group_size == 1:
        return {}
    stds = group_std(returns, group_size)
    return {"in_group_std": stds.mean().item(), "zero_std": in_float64(stds == 0).mean().item()}
