"""Lessons: what warm starts learn from where the oracle in one environment with one limit of actions is not enough.

A lesson is a function of the environment, the options of its play and those of its warm start; it returns the tokenizer
and the episodes to learn from, each with a start state of its own. A question names its lesson. The embedded model has
no language: the thoughts of `places` and `free` are a few tokens that make the next ones easier, such as where player
and goal are. They can show whether tokens before the answer help a small network, and not that language helps.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from ragen_envs import AgentTurns, NoOracleError, TextEnv, demonstration, plan
from ragen_envs.bandit import Bandit
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.frozen_lake.maps import GOAL
from ragen_envs.sokoban import NEW_VOCABULARY, Sokoban
from ragen_trl import StarPOConfig, Trajectory, WarmStartConfig, demonstrations_from, make_chat, make_turns
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.interfaces import TurnEnv
from ragen_trl.rollout.seeds import WARM_START

Lesson = tuple[PreTrainedTokenizerBase, list[Trajectory]]
Reply = Callable[[AgentTurns, np.random.Generator], str]

MOST_PER_TURN = 7
TOTAL = 10
TURNS = 5
# RAGEN's Table 3 is of the second kind: more actions a turn are also more actions in all.
FIXED_TOTAL: Mapping[int, dict[str, int]] = {
    each: {"max_turns": -(-TOTAL // each), "max_actions_per_turn": each, "max_actions": TOTAL}
    for each in range(1, MOST_PER_TURN + 1)
}
FIVE_TURNS: Mapping[int, dict[str, int]] = {
    each: {"max_turns": TURNS, "max_actions_per_turn": each, "max_actions": TURNS * each}
    for each in range(1, MOST_PER_TURN + 1)
}

_ROOM = {"dim_room": [5, 5]}
# Six parts in ten are of the game that is trained on, one each of the others: enough to read them.
GAMES: Sequence[tuple[int, str, dict[str, Any]]] = (
    (6, "ragen/Sokoban-v0", _ROOM),
    (1, "ragen/Sokoban-v0", {**_ROOM, "symbols": NEW_VOCABULARY}),
    (1, "ragen/Sokoban-v0", {}),
    (1, "ragen/SokobanLarge-v0", {}),
    (1, "ragen/FrozenLake-v0", {"is_slippery": False, "frozen_prob": 0.9}),
)


def every_limit(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Episodes under all limits of actions per turn: 1 to 7, of 10 actions in all and of 5 turns.

    The limits are in the first message, so one model can learn to fill its turns under all of them. What a message says
    about limits is one token, for any number of digits: a map is equally far from its answer under all limits. Each of
    the 13 kinds (two actions a turn are 10 in 5 turns either way) has the same number of episodes.
    """
    tokenizer = build_tiny_tokenizer(env=env)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in lines_about_limits()])
    limits = [*FIXED_TOTAL.values(), *(five for each, five in FIVE_TURNS.items() if five != FIXED_TOTAL[each])]
    episodes: list[Trajectory] = []
    for limit, seeds in zip(limits, shares(config.demonstrations, [1] * len(limits)), strict=True):
        episodes += played(env, changed(args, limit), tokenizer, full_turns(config.noise), seeds)
    return tokenizer, episodes


def lines_about_limits() -> list[str]:
    """All lines that `AgentTurns` writes about the limits of `FIXED_TOTAL` and `FIVE_TURNS`."""
    limits = [*FIXED_TOTAL.values(), *FIVE_TURNS.values()]
    lines = {
        f"Limits: actions per turn {limit['max_actions_per_turn']}, actions in all {limit['max_actions']}, "
        f"turns {limit['max_turns']}\n"
        for limit in limits
    }
    lines |= {f"Turn {turn} of {limit['max_turns']}\n" for limit in limits for turn in range(1, limit["max_turns"] + 1)}
    lines |= {f"Actions left: {left}" for limit in limits for left in range(limit["max_actions"] + 1)}
    return sorted(lines)


def several_games(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Episodes of small rooms, and a tenth each of other symbols, of larger rooms, of two boxes, and of lakes.

    A model that has never seen the other symbols cannot know what they mean; the test would be how well it guesses.
    After this lesson the test is whether training in one game makes another one better or worse.
    """
    tokenizer = build_tiny_tokenizer(env=env)
    parts = shares(config.demonstrations, [weight for weight, _, _ in GAMES])
    episodes: list[Trajectory] = []
    for (_, game, env_kwargs), seeds in zip(GAMES, parts, strict=True):
        there = changed(args, {"env_kwargs": env_kwargs})
        episodes += played(game, there, tokenizer, full_turns(config.noise), seeds)
    return tokenizer, episodes


def places(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Every thought says where player and goal, or player, boxes and targets are. Needs ``think=True``."""
    return _noted(env, args, config, with_note(config.noise, config.demo_actions_per_turn))


def free(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """A thought is empty, a note, or a note and the way, a third each, so training can change how long they are."""
    return _noted(env, args, config, with_note(config.noise, config.demo_actions_per_turn, free=True))


def _noted(env: str, args: StarPOConfig, config: WarmStartConfig, reply: Reply) -> Lesson:
    tokenizer = build_tiny_tokenizer(env=env)
    seeds = range(WARM_START, WARM_START + config.demonstrations)
    return tokenizer, played(env, args, tokenizer, reply, seeds)


def full_turns(noise: float) -> Reply:
    """Replies with as many actions as a turn allows, each the oracle's or, with probability ``noise``, a random one."""

    def reply(turns: AgentTurns, random: np.random.Generator) -> str:
        actions = demonstration(turns, turns.actions_left, turns.max_actions_per_turn, random, noise)
        return turns.format_reply(actions)

    return reply


def with_note(noise: float, actions_per_turn: int, free: bool = False) -> Reply:
    """Replies with noisy actions after a note that is right.

    Args:
        noise: Probability that an action is random.
        actions_per_turn: Of a reply.
        free: Whether a third of the thoughts are empty, a third a note, and a third a note and the way to the end.
    """

    def reply(turns: AgentTurns, random: np.random.Generator) -> str:
        actions = demonstration(turns, turns.actions_left, actions_per_turn, random, noise)
        assert isinstance(turns.unwrapped, TextEnv)
        note = place_note(turns.unwrapped)
        if not free:
            return turns.format_reply(actions, note)
        way = plan(turns, turns.actions_left, turns.actions_left, random)
        return turns.format_reply(actions, ("", note, f"{note} {' '.join(way)}")[random.integers(3)])

    return reply


@functools.singledispatch
def place_note(env: TextEnv) -> str:
    """Row and column of what matters, counted from 0 at the top left, each after its symbol on the map.

    A bandit has no map; its note repeats the names, in the order of the message, and does not say which one is better.

    Raises:
        NoOracleError: If there is no note for this type of environment.
    """
    raise NoOracleError("place_note", env)


@place_note.register
def _(env: FrozenLake) -> str:
    size = round(len(env.lake.tiles) ** 0.5)
    return " ".join([_places("P", [env.position], size), _places("G", [env.lake.tiles.index(GOAL)], size)])


@place_note.register
def _(env: Sokoban) -> str:
    room = env.room
    things = (("P", [room.player]), ("X", sorted(room.boxes)), ("O", sorted(room.board.targets)))
    return " ".join(_places(symbol, squares, room.board.width) for symbol, squares in things)


@place_note.register
def _(env: Bandit) -> str:
    return " ".join(env.actions)


def _places(symbol: str, squares: Sequence[int], width: int) -> str:
    return " ".join(f"{symbol}{square // width}{square % width}" for square in squares)


def played(
    env: str, args: StarPOConfig, tokenizer: PreTrainedTokenizerBase, reply: Reply, seeds: Sequence[int]
) -> list[Trajectory]:
    """Episodes of a script, failures included, in the tokens of the model that learns."""

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return reply(turns, random)

    chat = make_chat(tokenizer, make_turns(env, args), args)
    return demonstrations_from(ScriptedPolicy(script), env, args, chat, seeds, keep=lambda trajectory: True)


def changed(args: StarPOConfig, options: Mapping[str, Any]) -> StarPOConfig:
    """The configuration with other values; a copy, since TRL derives fields that it would refuse as arguments."""
    other = copy(args)
    for name, value in options.items():
        setattr(other, name, value)
    return other


def shares(total: int, weights: Sequence[int]) -> list[range]:
    """Cuts the warm start's seeds into consecutive parts, in proportion to weights; the last takes the rest.

    Example:
        >>> [len(part) for part in shares(11, [2, 1, 1])]
        [5, 2, 4]
    """
    lengths = [total * weight // sum(weights) for weight in weights]
    lengths[-1] = total - sum(lengths[:-1])
    firsts = [WARM_START + sum(lengths[:number]) for number in range(len(lengths))]
    return [range(first, first + length) for first, length in zip(firsts, lengths, strict=True)]
