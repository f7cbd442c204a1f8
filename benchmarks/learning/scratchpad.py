"""A scratchpad for a model without language: demonstrations whose thoughts say where things are.

The embedded model cannot reason in words. It can write a few tokens that make the next ones easier: the places of
player and goal as digits, from which the direction follows in one more step. `places` shows the episodes of
`imitation.demonstrate`, action for action, and adds thoughts. `free` has thoughts of three lengths, so that training
can change how long they are. This can show whether tokens before the answer help a small network. It cannot show that
language helps, as in RAGEN's Table 4. Left out: thoughts that are wrong, and plans for lakes that slip.
"""

import functools
from collections.abc import Sequence

import numpy as np

from learning.demonstrations import Lesson, Reply, played
from ragen_envs import AgentTurns, NoOracleError, TextEnv, demonstration, plan
from ragen_envs.bandit import Bandit
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.frozen_lake.maps import GOAL
from ragen_envs.sokoban import Sokoban
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.seeds import WARM_START

# A note with three places, ten moves in words, and two actions.
LONGEST_REPLY = 40


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
    return " ".join([_noted("P", [env.position], size), _noted("G", [env.lake.tiles.index(GOAL)], size)])


@place_note.register
def _(env: Sokoban) -> str:
    room = env.room
    places = (("P", [room.player]), ("X", sorted(room.boxes)), ("O", sorted(room.board.targets)))
    return " ".join(_noted(symbol, squares, room.board.width) for symbol, squares in places)


@place_note.register
def _(env: Bandit) -> str:
    return " ".join(env.actions)


def _noted(symbol: str, squares: Sequence[int], width: int) -> str:
    return " ".join(f"{symbol}{square // width}{square % width}" for square in squares)


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


def places(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Lesson: every thought says where player and goal, or player, boxes and targets are. Needs ``think=True``."""
    return _lesson(env, args, config, with_note(config.noise, config.demo_actions_per_turn))


def free(env: str, args: StarPOConfig, config: WarmStartConfig) -> Lesson:
    """Lesson: a thought is empty, a note, or a note and the way, a third each. Needs ``think=True``."""
    return _lesson(env, args, config, with_note(config.noise, config.demo_actions_per_turn, free=True))


def _lesson(env: str, args: StarPOConfig, config: WarmStartConfig, reply: Reply) -> Lesson:
    tokenizer = build_tiny_tokenizer(env=env)
    seeds = range(WARM_START, WARM_START + config.demonstrations)
    return tokenizer, played(env, args, tokenizer, reply, seeds)
