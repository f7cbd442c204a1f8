"""CPU times that are compared within one run, so that a busy or slow machine changes nothing."""

import time
from collections.abc import Callable, Sequence

PARTS = 8


def cpu_seconds(run: Callable[[], object]) -> float:
    """The shortest of three runs."""
    times = []
    for _ in range(3):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def assert_linear(run: Callable[[str], object], texts: Sequence[str]) -> None:
    """All texts take at most three times as long as their length says, compared with an eighth of each."""
    short = cpu_seconds(lambda: [run(text[: len(text) // PARTS]) for text in texts])
    whole = cpu_seconds(lambda: [run(text) for text in texts])
    # Quadratic time would be 64 times as long. A millisecond is below what the clock can compare.
    assert whole < 3 * PARTS * short + 1e-3, f"{whole:.4f} s, an eighth of it {short:.4f} s"
