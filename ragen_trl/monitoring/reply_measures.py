"""Measures of replies: length of thoughts, repetition, and how alike the replies of a group are.

Pure functions on lists of tokens and digests of texts, linear in tokens; no model, no trainer. RAGEN calls the loss of
variety the echo trap (arXiv 2504.20073, section 4.1) and shows it by examples. Distinct n-grams are those of Li et al.
(arXiv 1510.03055). Left out: embeddings and BLEU between replies, which need a model or a quadratic comparison.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from ragen_trl.trajectory import Trajectory

THINK, END_THINK = "<think>", "</think>"
_BASE = 1 << 21  # larger than every vocabulary; three digits of this base fit into 63 bits


@dataclass(frozen=True)
class Sketch:
    """What the measures need of an episode; small enough to be sent to all processes.

    Attributes:
        first_reply: Digest of the first reply's text.
        plan: Digest of all actions, turn by turn; of the reply where there are no actions.
        first_action: Digest of the first action executed, "" if there was none.
        turns: Number of turns.
        actions: Number of executed actions.
        effective: Number of turns that changed the state.
        reply_tokens: Sampled tokens of all turns.
        thoughts: Number of turns with a thought.
        thought_tokens: Sampled tokens inside ``<think>``, of all turns.
    """

    first_reply: str
    plan: str
    first_action: str
    turns: int
    actions: int
    effective: int
    reply_tokens: int
    thoughts: int
    thought_tokens: int


def digest(text: str) -> str:
    """Sixteen hexadecimal digits that identify a text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def thought_span(pieces: Sequence[str], opened: bool) -> tuple[int, int] | None:
    """The span of the thought in a reply: index of its first token, and of the token after its last; without tags.

    A token that holds a part of a tag is not part of the thought. A thought without an end tag, as in a reply that was
    cut, ends with the last token.

    Args:
        pieces: The text of each sampled token.
        opened: Whether the prompt ended with ``<think>``, so that the reply begins inside a thought.

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
    end = text.find(END_THINK, start)
    end = len(text) if end < 0 else end
    inside, place = [], 0
    for index, piece in enumerate(pieces):
        if piece and start <= place and place + len(piece) <= end:
            inside.append(index)
        place += len(piece)
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def sketch(trajectory: Trajectory, thought_tokens: Sequence[int | None]) -> Sketch:
    """The sketch of a trajectory.

    Args:
        trajectory: Its ``info`` has the keys of `ragen_envs.AgentTurns`.
        thought_tokens: For each turn the sampled tokens inside its thought, ``None`` where there is none.
    """
    infos = [turn.info for turn in trajectory.turns]
    actions = [tuple(info["actions"]) for info in infos]
    thought = [count for count in thought_tokens if count is not None]
    return Sketch(
        first_reply=digest(trajectory.turns[0].reply),
        plan=digest(repr(actions)),
        first_action=next((digest(str(turn[0])) for turn in actions if turn), ""),
        turns=len(infos),
        actions=sum(map(len, actions)),
        effective=sum(bool(info["action_is_effective"]) for info in infos),
        reply_tokens=trajectory.num_reply_tokens,
        thoughts=len(thought),
        thought_tokens=sum(thought),
    )


def episode_measures(sketches: Sequence[Sketch]) -> dict[str, float]:
    """Lengths and shares over all turns of a rollout; ``thought_tokens`` only if there are thoughts.

    Args:
        sketches: At least one.

    Returns:
        ``reply_tokens``, ``actions`` and ``effective`` (share of turns that changed the state) per turn,
        ``thought_tokens`` per thought.
    """
    turns = sum(one.turns for one in sketches)
    thoughts = sum(one.thoughts for one in sketches)
    found = {
        "reply_tokens": sum(one.reply_tokens for one in sketches) / turns,
        "actions_per_turn": sum(one.actions for one in sketches) / turns,
        "effective": sum(one.effective for one in sketches) / turns,
    }
    return found | ({"thought_tokens": sum(one.thought_tokens for one in sketches) / thoughts} if thoughts else {})


def echo_measures(sketches: Sequence[Sketch], group_size: int) -> dict[str, float]:
    """How alike the members of a group are, all of which answered the same first message; empty for groups of one.

    Args:
        sketches: (P · G,) groups contiguous.
        group_size: G.

    Returns:
        ``identical_replies`` and ``identical_episodes``: the share of pairs within a group with the same first reply,
        and with the same actions throughout; ``first_actions``: the number of distinct first actions in a group.
    """
    if group_size == 1:
        return {}
    groups = [sketches[first : first + group_size] for first in range(0, len(sketches), group_size)]
    return {
        "identical_replies": fmean(identical_pairs([one.first_reply for one in group]) for group in groups),
        "identical_episodes": fmean(identical_pairs([one.plan for one in group]) for group in groups),
        "first_actions": fmean(len({one.first_action for one in group}) for group in groups),
    }


def identical_pairs(values: Sequence[str]) -> float:
    """Share of equal pairs: ``Σ_v n_v (n_v - 1) / (n (n - 1))``.

    An unbiased estimate of the probability that two samples agree. Unlike the share of the most frequent value, it can
    be compared between groups of different sizes.

    Args:
        values: At least two.

    Raises:
        ValueError: If there are fewer.

    Example:
        >>> identical_pairs(["Up", "Up", "Up", "Left"])
        0.5
    """
    size = len(values)
    if size < 2:
        raise ValueError(f"{size} values make no pair; give at least 2")
    return sum(count * (count - 1) for count in Counter(values).values()) / (size * (size - 1))


def ngram_codes(replies: Sequence[Sequence[int]], n: int) -> tuple[np.ndarray, int]:
    """The distinct n-grams of replies as sorted numbers, and the number of all n-grams, repeated ones included.

    ``np.union1d`` joins those of several processes. An n-gram does not cross the end of a reply.

    Args:
        replies: Token ids below 2^21.
        n: 1, 2 or 3.

    Raises:
        ValueError: If ``n`` is another number.
    """
    if n not in (1, 2, 3):
        raise ValueError(f"n is {n}; n-grams of 1, 2 or 3 tokens fit into 63 bits")
    codes = []
    for reply in replies:
        ids = np.asarray(reply, dtype=np.int64)
        count = len(ids) - n + 1
        if count > 0:
            code = ids[:count].copy()
            for offset in range(1, n):
                code = code * _BASE + ids[offset : offset + count]
            codes.append(code)
    together = np.concatenate(codes) if codes else np.empty(0, dtype=np.int64)
    return np.unique(together), len(together)


def distinct_ngrams(replies: Sequence[Sequence[int]], n: int) -> float:
    """Distinct n-grams over all n-grams (distinct-n, arXiv 1510.03055); 1 if there are none.

    It falls with the amount of text, so compare rollouts of one size only, such as those of a run.

    Args:
        replies: Token ids of each reply.
        n: 1, 2 or 3.

    Example:
        >>> distinct_ngrams([[1, 2, 1, 2], [3]], 1), round(distinct_ngrams([[1, 2, 1, 2], [3]], 2), 3)
        (0.6, 0.667)
    """
    distinct, total = ngram_codes(replies, n)
    return len(distinct) / total if total else 1.0
