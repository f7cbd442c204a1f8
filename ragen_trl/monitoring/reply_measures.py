"""Measures of replies: length of thoughts, repetition, and how alike the replies of a group are.

Pure functions on lists of tokens and digests of texts, linear in tokens. RAGEN calls the loss of variety the echo trap
(arXiv 2504.20073, section 4.1). Distinct n-grams follow Li et al. (arXiv 1510.03055).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np

from ragen_envs import restates
from ragen_trl.rollout.control_tokens import THINK
from ragen_trl.trajectory import Trajectory, Turn, end_of_thought

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
        named: Number of turns whose thought names an action.
        followed: Number of these whose answer begins with the last action that the thought names.
        chosen: Number of turns with a thought that could name an action: the environment has names.
        asked: Number of turns with a thought about a request (``info["request"]``).
        restated: Number of these whose thought says nothing but the request (`ragen_envs.restates`).
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
    named: int = 0
    followed: int = 0
    chosen: int = 0
    asked: int = 0
    restated: int = 0


def digest(text: str) -> str:
    """Sixteen hexadecimal digits that identify a text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


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


def named_action(thought: str, names: Sequence[str]) -> str | None:
    """The one of ``names`` (valid actions) that a thought names last, in any case; whole words only; or ``None``.

    A name of several words in one, as in RAGEN's bandits, is also found in several words.

    Example:
        >>> named_action("The goal is on my right, but a hole is there: I go down.", ("Down", "Right", "Up"))
        'Down'
        >>> named_action("A startup founder is bold.", ("Nurse", "StartupFounder"))
        'StartupFounder'
        >>> named_action("Upwards!", ("Down", "Up")) is None
        True
    """
    last = None
    for match in _names_pattern(tuple(names)).finditer(thought):
        last = match.lastindex
    return None if last is None else names[last - 1]


@lru_cache(maxsize=1024)
def _names_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    spelled = [r"\s?".join(map(re.escape, re.split(r"(?<=[a-z])(?=[A-Z])", name))) for name in names]
    return re.compile(rf"(?<!\w)(?:{'|'.join(f'({name})' for name in spelled)})(?!\w)", re.IGNORECASE)


def sketch(trajectory: Trajectory, thought_tokens: Sequence[int | None]) -> Sketch:
    """The sketch of a trajectory; ``thought_tokens`` are given turn by turn, ``None`` without a thought."""
    infos = [turn.info for turn in trajectory.turns]
    actions = [tuple(info["actions"]) for info in infos]
    thought = [count for count in thought_tokens if count is not None]
    followed = [
        _is_followed(turn)
        for turn, count in zip(trajectory.turns, thought_tokens, strict=True)
        if count is not None and turn.info["action_names"]
    ]
    asked = [
        restates(turn.thought, turn.info["request"])
        for turn, count in zip(trajectory.turns, thought_tokens, strict=True)
        if count is not None and turn.info.get("request")
    ]
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
        named=sum(one is not None for one in followed),
        followed=sum(one is True for one in followed),
        chosen=len(followed),
        asked=len(asked),
        restated=sum(asked),
    )


def _is_followed(turn: Turn) -> bool | None:
    """Whether the first action of a turn is the one that its thought names last; ``None`` if it names none."""
    named = named_action(turn.thought, turn.info["action_names"])
    return None if named is None else tuple(turn.info["actions"][:1]) == (named,)


def episode_measures(sketches: Sequence[Sketch]) -> dict[str, float]:
    """Lengths and shares over all turns of a rollout; about thoughts only if there are thoughts.

    Returns:
        ``reply_tokens``, ``actions`` and ``effective`` (share of turns that changed the state) per turn,
        ``thought_tokens`` per thought. Where actions have names: ``thought_names``, the share of thoughts that name
        one, and ``thought_followed``, of these the share whose answer begins with the one that is named last. Where
        there is a request: ``thought_restates``, the share of thoughts that say nothing else.
    """
    turns = sum(one.turns for one in sketches)
    thoughts = sum(one.thoughts for one in sketches)
    found = {
        "reply_tokens": sum(one.reply_tokens for one in sketches) / turns,
        "actions_per_turn": sum(one.actions for one in sketches) / turns,
        "effective": sum(one.effective for one in sketches) / turns,
    }
    if thoughts:
        found["thought_tokens"] = sum(one.thought_tokens for one in sketches) / thoughts
    named, chosen = sum(one.named for one in sketches), sum(one.chosen for one in sketches)
    if chosen:
        found["thought_names"] = named / chosen
    if named:
        found["thought_followed"] = sum(one.followed for one in sketches) / named
    asked = sum(one.asked for one in sketches)
    if asked:
        found["thought_restates"] = sum(one.restated for one in sketches) / asked
    return found


def echo_measures(sketches: Sequence[Sketch], group_size: int) -> dict[str, float]:
    """How alike the members of a group are, all of which answered the same first message; empty for groups of one.

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
    """Share of equal pairs: ``Σ_v n_v (n_v - 1) / (n (n - 1))``, an unbiased estimate of how often two samples agree.

    Unlike the share of the most frequent value, it can be compared between groups of different sizes.

    Raises:
        ValueError: If there are fewer than two values.

    Example:
        >>> identical_pairs(["Up", "Up", "Up", "Left"])
        0.5
    """
    size = len(values)
    if size < 2:
        raise ValueError(f"{size} values make no pair; give at least 2")
    return sum(count * (count - 1) for count in Counter(values).values()) / (size * (size - 1))


def ngram_codes(replies: Sequence[Sequence[int]], n: int) -> tuple[np.ndarray, int]:
    """The distinct n-grams (n from 1 to 3) of token ids below 2^21 as sorted numbers, and the number of all n-grams.

    ``np.union1d`` joins the n-grams of several processes. An n-gram does not cross the end of a reply.

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
    """Distinct n-grams over all n-grams (distinct-n, arXiv 1510.03055; n from 1 to 3); 1 if there are none.

    It falls with the amount of text, so compare rollouts of one size only, such as a run's.

    Example:
        >>> distinct_ngrams([[1, 2, 1, 2], [3]], 1), round(distinct_ngrams([[1, 2, 1, 2], [3]], 2), 3)
        (0.6, 0.667)
    """
    distinct, total = ngram_codes(replies, n)
    return len(distinct) / total if total else 1.0
