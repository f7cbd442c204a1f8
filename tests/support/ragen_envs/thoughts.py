"""Thoughts of noisy oracles in many states, and a reader of sentences that shares no code with their writers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ragen_envs import AgentTurns, TextEnv, demonstration, explain

NUMBERS = {word: number for number, word in enumerate("zero one two three four five six seven eight nine ten".split())}
# Words of the program that a player cannot know, and tags.
HIDDEN = re.compile(r"seed|random|optimal|oracle|solver|outcome|probab|expected|reward|score|goal_id|[<>]|\d{10}", re.I)


class Thought(NamedTuple):
    """What was said before an answer.

    Attributes:
        env: The environment in the state before it.
        text: The thought.
        actions: The actions of the answer.
    """

    env: Any
    text: str
    actions: list[str]


def thoughts(
    env_id: str,
    seeds: int,
    noise: float,
    length: int = 1,
    limits: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Iterator[Thought]:
    """One for each turn of an episode for each seed; what `env` is changes after each."""
    turns = AgentTurns(gymnasium.make(env_id, **kwargs), **(limits or {}))
    assert isinstance(turns.unwrapped, TextEnv)
    for seed in range(seeds):
        turns.reset(seed=seed)
        rng, over = np.random.default_rng(seed), False
        while not over:
            actions = demonstration(turns, turns.actions_left, length, rng, noise)
            text = explain(turns, actions, rng)
            yield Thought(turns.unwrapped, text, actions)
            reply = turns.format_reply(actions, text)
            assert turns.reply_format.read(reply) == tuple(actions)
            _, _, terminated, truncated, _ = turns.step(reply)
            over = terminated or truncated
    turns.close()


def check_form(text: str, action: str, known: str = "") -> None:
    """One or two sentences in one line, of modest length, without hidden things, that end with the action.

    Args:
        text: The thought.
        action: What it ends with.
        known: Text whose words may occur although they are the names of hidden things.
    """
    assert text.endswith(f" {action}."), text
    said = f"{text.removesuffix(f' {action}.')}."
    plain = re.sub(r"\w+", lambda word: "" if word[0].lower() in known.lower() else word[0], said)
    assert not HIDDEN.search(plain), text
    assert said == " ".join(said.split()) and (said[0].isupper() or said[0].isdigit()), text
    assert 1 <= len(re.findall(r"[.!?](?= [A-Z]|$)", said)) <= 2, text
    assert len(said) < 260, text


Claim = Callable[[re.Match[str]], bool]


def check_claims(text: str, claims: Mapping[str, Claim], neutral: Sequence[str]) -> list[str]:
    """Check that a text consists of true claims and of nothing else but neutral words.

    Args:
        text: One or two sentences.
        claims: For each pattern, whether what it found is true; what one has found is not read again.
        neutral: Patterns of words that claim nothing.

    Returns:
        The patterns that were found.
    """
    rest, found = text, []
    for pattern, is_true in claims.items():
        for match in re.finditer(pattern, rest, re.IGNORECASE):
            assert is_true(match), f"{match[0]!r} is wrong in {text!r}"
            found.append(pattern)
        rest = re.sub(pattern, "#", rest, flags=re.IGNORECASE)
    left = re.sub("|".join(neutral), "", rest, flags=re.IGNORECASE)
    assert re.fullmatch(r"[#\s.,:;]*", left), f"{left!r} is not understood in {text!r}"
    return found


def way_in(text: str) -> tuple[int, int]:
    """Rows down and columns to the right of a way such as "two squares up and 1 to the left"."""
    rows = columns = 0
    for number, direction in re.findall(r"(\w+)(?: (?:steps?|squares?))? (down|up|to the left|to the right)", text):
        count = int(number) if number.isdigit() else NUMBERS[number]
        rows += {"down": count, "up": -count}.get(direction, 0)
        columns += {"to the right": count, "to the left": -count}.get(direction, 0)
    return rows, columns


_STEP = r"\w+(?: (?:steps?|squares?))? (?:down|up|to the left|to the right)"
WAY = rf"(?P<way>{_STEP}(?: and {_STEP})?)"
PLACE = r"(?P<place>above me|below me|on my left|on my right)"
ASIDE = {"above me": (-1, 0), "below me": (1, 0), "on my left": (0, -1), "on my right": (0, 1)}
OFFSETS = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
