"""Lessons: what the warm starts of some questions learn from, if one environment and one limit are not enough.

A lesson is a function of the task's environment, the options of its play and those of its warm start; it returns the
tokenizer and the episodes to learn from. Every episode has a start state of its own. Left out: lessons by a model.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import gymnasium
import numpy as np
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from ragen_envs import AgentTurns, demonstration
from ragen_envs.sokoban import NEW_VOCABULARY
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.demonstrations import demonstrations_from
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.trajectory import Trajectory

Lesson = tuple[PreTrainedTokenizerBase, list[Trajectory]]
Reply = Callable[[AgentTurns, np.random.Generator], str]
MakeEnv = Callable[[], gymnasium.Env[str, str]]

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


def full_turns(noise: float) -> Reply:
    """Replies with as many actions as a turn allows, each the oracle's or, with probability ``noise``, a random one."""

    def reply(turns: AgentTurns, random: np.random.Generator) -> str:
        return turns.format_reply(
            demonstration(turns, turns.actions_left, turns.max_actions_per_turn, random, noise)
        )

    return reply


def played(
    env: str | MakeEnv,
    args: StarPOConfig,
    tokenizer: PreTrainedTokenizerBase,
    reply: Reply,
    seeds: Sequence[int],
) -> list[Trajectory]:
    """Episodes of a script, failures included, in the tokens of the model that learns.

    Args:
        env: A Gymnasium id or a function, as for the trainer.
        args: Limits and format.
        tokenizer: Of the model.
        reply: Answers the environment; its random generator depends only on the seed.
        seeds: Start states.
    """

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return reply(turns, random)

    chat = make_chat(tokenizer, make_turns(env, args), args)
    return demonstrations_from(
        ScriptedPolicy(script), env, args, chat, seeds, keep=lambda trajectory: True, batch_size=256
    )


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


def every_limit(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Episodes under all limits of actions per turn: 1 to 7, of 10 actions in all and of 5 turns.

    The limits are in the first message, so that one model can learn to fill its turns under all of them. What a message
    says about limits is one token, for any number of digits: a map is equally far from its answer under all limits.
    Each of the 13 kinds (two actions a turn are 10 in 5 turns either way) has the same number of episodes.

    Args:
        env: Gymnasium id.
        args: Environment arguments and format; its limits are replaced.
        config: Number of episodes and noise.
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

    Args:
        env: Gymnasium id, of the tokenizer.
        args: Limits and format; its environment arguments are replaced.
        config: Number of episodes and noise.
    """
    tokenizer = build_tiny_tokenizer(env=env)
    parts = shares(config.demonstrations, [weight for weight, _, _ in GAMES])
    episodes: list[Trajectory] = []
    for (_, game, env_kwargs), seeds in zip(GAMES, parts, strict=True):
        there = changed(args, {"env_kwargs": env_kwargs})
        episodes += played(game, there, tokenizer, full_turns(config.noise), seeds)
    return tokenizer, episodes
