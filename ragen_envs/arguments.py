"""Checks of arguments that several environments take. Each raises a `ValueError` that says what to give instead."""

from collections.abc import Iterable

import numpy as np


def check_integer(name: str, value: object, least: int, why: str) -> None:
    """The value is an integer, no bool, of at least `least`; `why` says what less does ("leaves nothing to push")."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}; use an integer, {least} or more")
    if value < least:
        raise ValueError(f"{name}={value} {why}; use {least} or more")


def check_limit(name: str, value: object) -> None:
    """The value is None, for no limit, or an integer of at least 1."""
    if value is not None:
        check_integer(name, value, 1, "leaves nothing to play")


def checked_number(name: str, number: object) -> int:
    """Reads a seed or an index that was given as an option of `reset`: an integer of at least 0."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
        raise ValueError(f"{name}={number!r} must be an integer >= 0")
    return int(number)


def check_probability(name: str, value: object) -> None:
    """The value is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value!r} is not a probability; use a number from 0 to 1")


def check_flags(**values: object) -> None:
    """Each value is True or False; "false" would count as true."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name}={value!r} is a {type(value).__name__}; use True or False, in JSON true or false")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """The value is one of the choices."""
    listed = tuple(choices)
    if value not in listed:
        raise ValueError(f"{name}={value!r} is unknown; use one of {', '.join(listed)}")
