"""Run calls to environments side by side, within a time limit; one that raises or hangs returns a `Failure`.

A batch begins with one thread: threads of one Python process share its interpreter, so environments that only compute
gain nothing from more. Every two milliseconds that calls still wait there are four times as many, so a batch of calls
that wait for a server takes little longer than its slowest one. A thread that hangs cannot be stopped, only abandoned:
its environment must not be used again.
"""

import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ragen_envs import EnvError
from ragen_trl.config.options import DEFAULT_WORKERS

logger = logging.getLogger(__name__)

FAILURES = ("crash", "timeout")
"""Values of `Failure.kind`: an exception, or no answer within the time limit."""
_PATIENCE = 0.002  # seconds after which calls that still wait get more threads

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A call that failed: a crash with its exception, or one that hangs, without."""

    kind: str  # one of FAILURES
    text: str  # the traceback, or the message of an EnvError; for a call that hangs, the stack of its thread
    error: Exception | None = field(default=None, compare=False)


class EnvExecutor:
    """Runs batches of calls. The results do not depend on the number of threads.

    A call may run in any thread, so no two calls of a batch may use the same environment. Threads that hang are
    abandoned; they do not keep the process alive.

    Args:
        workers: Number of threads at most. 0 runs the calls one after the other in the thread that calls `run`, for
            environments that only one thread may use.
        timeout: Seconds that a call may take, measured on the wall clock from its start; ``None`` for no limit.
    """

    def __init__(self, workers: int = DEFAULT_WORKERS, timeout: float | None = None) -> None:
        if workers < 0 or (timeout is not None and (timeout <= 0 or not workers)):
            raise ValueError(
                f"workers is {workers} and timeout is {timeout}; give a number of threads, or 0 for none, and seconds "
                "above 0 or None; a time limit needs a thread"
            )
        self.workers, self.timeout = workers, timeout
        self._warned: set[tuple[str, str]] = set()

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """What each call returns, or its `Failure`, in order. The first failure of every kind is logged."""
        if not self.workers:
            return [self.attempt(call) for call in calls]
        waiting, outcomes = deque(enumerate(calls)), dict[int, T | Failure]()
        running: dict[int, tuple[float, int]] = {}  # began when, in which thread; who takes a call out finishes it
        faults: list[BaseException] = []
        over = threading.Event()  # set at the end alone: waking this thread would slow the others down

        def finished(index: int, outcome: T | Failure) -> bool:
            if running.pop(index, None) is None:
                return False
            outcomes[index] = outcome
            if len(outcomes) == len(calls):
                over.set()
            return True

        def work() -> None:
            try:
                while waiting:
                    index, call = waiting.popleft()
                    running[index] = time.monotonic(), threading.get_ident()
                    if not finished(index, _attempt(call)):
                        break  # this thread was abandoned
            except IndexError:
                pass  # another thread has taken the last call
            except BaseException as error:  # such as SystemExit: it is raised again where `run` was called
                faults.append(error)
                over.set()

        threads, more = 0, 1  # without abandoned ones
        try:
            while len(outcomes) < len(calls) and not faults:
                for _ in range(min(more, self.workers - threads, len(waiting))):
                    threading.Thread(target=work, name="environment", daemon=True).start()
                    threads += 1
                over.wait(self._pause(bool(waiting) and threads < self.workers, running))
                for index, (began, thread) in list(running.items()):
                    if self.timeout is not None and time.monotonic() - began >= self.timeout:
                        text = f"no answer within {self.timeout:g} s; the call is at\n{_stack(thread)}"
                        threads -= finished(index, Failure("timeout", text))
                more = max(1, 3 * threads)
        finally:
            waiting.clear()  # after Ctrl-C no call begins any more
        if faults:
            raise faults[0]
        return [self._warned_of(outcomes[index]) for index in range(len(calls))]

    def attempt(self, call: Callable[[], T]) -> T | Failure:
        """What one call returns, or its `Failure`: run in this thread and without the time limit."""
        return self._warned_of(_attempt(call))

    def _pause(self, may_grow: bool, running: Mapping[int, tuple[float, int]]) -> float | None:
        """Seconds until the next look at the calls; ``None`` to wait for the last one."""
        if may_grow or self.timeout is None:
            return _PATIENCE if may_grow else None
        first = min((began for began, _ in list(running.values())), default=time.monotonic())
        return max(_PATIENCE, first + self.timeout - time.monotonic())

    def _warned_of(self, outcome: T | Failure) -> T | Failure:
        if isinstance(outcome, Failure):
            kind = (outcome.kind, type(outcome.error).__name__)
            if kind not in self._warned:
                logger.warning("an environment failed (%s); others like it are not shown:\n%s", kind[0], outcome.text)
            self._warned.add(kind)
        return outcome


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(its thread is gone)\n"


def _attempt(call: Callable[[], T]) -> T | Failure:
    try:
        return call()
    except EnvError as error:  # its message says what to do, and where it was raised is of no use
        return Failure("crash", f"{type(error).__name__}: {error}", error)
    except Exception as error:
        return Failure("crash", "".join(traceback.format_exception(error)), error)
