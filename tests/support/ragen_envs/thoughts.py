"""Thoughts of noisy oracles in many states, and a reader of sentences that shares no code with their writers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ragen_envs import AgentTurns, TextEnv, demonstration, explain

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
