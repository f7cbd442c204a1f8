"""Which environments an evaluation plays, as text: ``ID``, ``ID:{"argument": value}``, or the name of a suite.

A suite is a list of environments that says what was learnt in one of them is worth in others. Left out: limits of
turns, which ``eval_options.py`` takes from the model and the recipes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen_trl.errors import UserError

_EXAMPLE = """'ragen/Sokoban-v0:{"dim_room": [5, 5]}'"""


class EvalSpecError(UserError, ValueError):
    """An environment of an evaluation, or a suite, is written in a way that cannot be read."""


@dataclass(frozen=True)
class NamedEnv:
    """An environment as the user names it.

    Attributes:
        env: Gymnasium id.
        kwargs: Its keyword arguments, if they were written; ``None`` leaves them to the model and the recipes.
        changes: Keyword arguments on top of those that it would have otherwise.
    """

    env: str
    kwargs: Mapping[str, Any] | None = None
    changes: Mapping[str, Any] | None = None


SUITES: dict[str, tuple[NamedEnv, ...]] = {
    "sokoban": (
        NamedEnv("ragen/Sokoban-v0"),
        NamedEnv("ragen/SokobanLarge-v0"),
        NamedEnv("ragen/Sokoban-v0", changes={"symbols": "W.GCBA@"}),
        NamedEnv("ragen/FrozenLake-v0"),
    ),
    "bandit": (NamedEnv("ragen/Bandit-v0"), NamedEnv("ragen/BanditRev-v0")),
}
"""RAGEN's tests of generalisation: trained on Sokoban, tested on larger rooms, other symbols and the lake; trained on
Bandit, tested on BanditRev. The trained environment comes first."""


def read_spec(text: str) -> NamedEnv:
    r"""An environment from its text.

    Raises:
        EvalSpecError: If the arguments are no JSON object.

    Example:
        >>> read_spec('ragen/Sokoban-v0:{"num_boxes": 2}')
        NamedEnv(env='ragen/Sokoban-v0', kwargs={'num_boxes': 2}, changes=None)
    """
    env, mark, rest = text.partition(":{")
    if not env:
        raise EvalSpecError(f"env is {text!r}; give a Gymnasium id, with arguments if you like: {_EXAMPLE}")
    if not mark:
        return NamedEnv(env)
    try:
        return NamedEnv(env, json.loads("{" + rest))
    except ValueError as error:
        raise EvalSpecError(
            f"the arguments of env {text!r} are no JSON ({error}); write them in quotes, like {_EXAMPLE}"
        ) from None


def named_envs(texts: Sequence[str], suite: str | None) -> list[NamedEnv]:
    """What is played: the environments of ``texts``, or of the suite.

    Raises:
        EvalSpecError: If both are given, or there is no such suite.
    """
    if suite is None:
        return [read_spec(text) for text in texts]
    if texts:
        raise EvalSpecError(f"suite is {suite!r} and env {list(texts)}; give one of them")
    if suite not in SUITES:
        raise EvalSpecError(f"suite is {suite!r}; choose one of {', '.join(SUITES)}, or list environments with --env")
    return list(SUITES[suite])
