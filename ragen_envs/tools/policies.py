"""Policies for the tasks with tools: the oracle, which makes the calls of a shortest way, and random calls."""

from typing import Any

import numpy as np

from ragen_envs.calling.tool import write_answer, write_call


def best_call(env: Any, actions_left: int) -> str:
    """The next call of a shortest way. Nothing that it gives was not said before; it never guesses.

    After wrong changes the way may lead nowhere. At its end the oracle then gives up with an answer.
    """
    way = env.way
    return write_call(way[0].name, way[0].arguments) if way else write_answer("It cannot be done any more.")


def random_call(env: Any, rng: np.random.Generator) -> str:
    """A uniformly random tool, with arguments that are uniformly random among those of its kind in the database."""
    made = env.random_call(rng)
    return write_call(made.name, made.arguments)
