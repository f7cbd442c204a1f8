"""Checks of the arguments that environments share, with errors that name the value and the remedy."""

import numpy as np

PRINTABLE = frozenset(map(chr, range(32, 127)))


def check_integer(name: str, value: object, least: int, why: str) -> None:
    """Refuses anything but a whole number that is large enough.

    Args:
        name: Name of the argument.
        value: What was given.
        least: The smallest number that makes sense.
        why: What a smaller number would do, as in "leaves nothing to push".

    Raises:
        ValueError: If the value is no integer (True and False are none), or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}; use an integer, {least} or more")
    if value < least:
        raise ValueError(f"{name}={value} {why}; use {least} or more")


def checked_number(name: str, number: object) -> int:
    """A number given as an option of `reset`: a seed, or the index of something.

    Raises:
        ValueError: If it is not an integer of at least 0.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
        raise ValueError(f"{name}={number!r} must be an integer >= 0")
    return int(number)


def check_probability(name: str, value: object) -> None:
    """Refuses anything but a number from 0 to 1.

    Raises:
        ValueError: If the value is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value!r} is not a probability; use a number from 0 to 1")


def check_action_name(name: object) -> None:
    """Refuses what cannot be the name of an action: it is matched stripped, and shown in one line.

    Raises:
        ValueError: If the name is not printable ASCII text, is empty, or has blanks at its ends.
    """
    if not isinstance(name, str) or not name or name != name.strip() or not set(name) <= PRINTABLE:
        raise ValueError(f"the name {name!r} of an action must be printable ASCII text without blanks at its ends")
