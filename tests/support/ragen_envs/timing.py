"""CPU times that are compared within one run, so that a busy or slow machine changes nothing."""

import time
from collections.abc import Callable, Sequence

PARTS = 8
ATTEMPTS = 3


def cpu_seconds(run: Callable[[], object]) -> float:
    """The CPU time of one call, at least what the clock can compare."""
    began = time.process_time()
    run()
    return max(time.process_time() - began, 1e-4)


def assert_ratio(run: Callable[[], object], reference: Callable[[], object], most: float) -> None:
    """`run` takes less than `most` times as long as `reference`, in at least one of three attempts."""
    ratios: list[float] = []
    while not ratios or (ratios[-1] >= most and len(ratios) < ATTEMPTS):
        ratios.append(cpu_seconds(run) / cpu_seconds(reference))
    assert ratios[-1] < most, ratios


def assert_linear(run: Callable[[str], object], texts: Sequence[str]) -> None:
    """All texts take at most three times as long as their length says, compared with an eighth of each.

    Quadratic time would be 64 times as long.
    """
    short = [text[: len(text) // PARTS] for text in texts]
    assert_ratio(lambda: [run(text) for text in texts], lambda: [run(text) for text in short], 3 * PARTS)
