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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ragen_envs import EnvError
from ragen_trl.config.options import DEFAULT_WORKERS

logger = logging.getLogger(__name__)

FAILURES = ("crash", "timeout")
"""Values of `Failure.kind`: an exception, or no answer within the time limit."""
_PATIENCE = 0.002  # seconds after which calls that still wait get more threads

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A call that failed.

    Attributes:
        kind: One of `FAILURES`.
        text: The traceback, or the message of an `EnvError`; for a call that hangs, the stack of its thread.
        error: The exception; ``None`` for a call that hangs.
    """

    kind: str
    text: str
    error: Exception | None = field(default=None, compare=False)


class EnvExecutor:
    """Runs batches of calls. The results do not depend on the number of threads.

    A call may run in any thread, so no two calls of a batch may use the same environment. Threads that hang are
    abandoned; they do not keep the process alive.

    Args:
        workers: Number of threads at most. 0 runs the calls one after the other in the thread that calls `run`, for
            environments that only one thread may use.
        timeout: Seconds that a call may take, measured on the wall clock from its start; ``None`` for no limit.

    Raises:
        ValueError: If ``workers`` is negative, ``timeout`` is not positive, or there is a timeout but no worker.
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
        batch, more = _Batch(calls), 1
        with batch.changed:
            try:
                while batch.left and batch.fault is None:
                    more = min(more, self.workers - batch.threads, len(batch.waiting))
                    for _ in range(more):
                        threading.Thread(target=batch.work, name="environment", daemon=True).start()
                    batch.threads += more
                    batch.changed.wait(self._pause(batch))
                    if self.timeout is not None:
                        batch.give_up(self.timeout)
                    more = max(1, 3 * batch.threads)
            finally:
                batch.waiting.clear()  # after Ctrl-C no call begins any more
        if batch.fault is not None:
            raise batch.fault
        return [self._warned_of(outcome) for outcome in batch.outcomes]

    def attempt(self, call: Callable[[], T]) -> T | Failure:
        """What one call returns, or its `Failure`: run in this thread and without the time limit."""
        return self._warned_of(_attempt(call))

    def _pause(self, batch: "_Batch[T]") -> float | None:
        """Seconds until the next look at the batch; ``None`` to wait for the last call."""
        if batch.waiting and batch.threads < self.workers:
            return _PATIENCE
        if self.timeout is None:
            return None
        first = min((began for began, _ in batch.running.values()), default=time.monotonic())
        return max(_PATIENCE, first + self.timeout - time.monotonic())

    def _warned_of(self, outcome: T | Failure) -> T | Failure:
        if isinstance(outcome, Failure):
            kind = (outcome.kind, type(outcome.error).__name__)
            if kind not in self._warned:
                logger.warning("an environment failed (%s); others like it are not shown:\n%s", kind[0], outcome.text)
            self._warned.add(kind)
        return outcome


class _Batch(Generic[T]):
    """The calls of a batch, which of them run in which thread since when, and their results.

    Everything is read and changed under the lock of ``changed``, which is notified when no call is left.
    """

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self.outcomes: list[Any] = [None] * len(calls)
        self.waiting = deque(range(len(calls)))
        self.running: dict[int, tuple[float, int]] = {}
        self.left = len(calls)
        self.threads = 0  # without abandoned ones
        self.fault: BaseException | None = None
        self.changed = threading.Condition()
        self._calls = calls

    def work(self) -> None:
        """Run calls until none is waiting, or until this thread has been abandoned."""
        while True:
            with self.changed:
                if not self.waiting:
                    return
                index = self.waiting.popleft()
                self.running[index] = time.monotonic(), threading.get_ident()
            outcome: T | Failure | None = None
            fault: BaseException | None = None
            try:
                outcome = _attempt(self._calls[index])
            except BaseException as error:  # such as SystemExit: it is raised again where `run` was called
                fault = error
            with self.changed:
                if self.running.pop(index, None) is None:
                    return
                self._finish(index, outcome, fault)

    def give_up(self, timeout: float) -> None:
        """Abandon the threads whose calls take longer."""
        now = time.monotonic()
        for index, (began, thread) in list(self.running.items()):
            if now - began >= timeout:
                del self.running[index]
                self.threads -= 1
                frame = sys._current_frames().get(thread)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread is gone)\n"
                text = f"no answer within {timeout:g} s; the call is at\n{stack}"
                self._finish(index, Failure("timeout", text))

    def _finish(self, index: int, outcome: T | Failure | None, fault: BaseException | None = None) -> None:
        self.outcomes[index], self.fault = outcome, fault or self.fault
        self.left -= 1
        if not self.left or fault is not None:
            self.changed.notify()


def _attempt(call: Callable[[], T]) -> T | Failure:
    try:
        return call()
    except EnvError as error:  # its message says what to do, and where it was raised is of no use
        return Failure("crash", f"{type(error).__name__}: {error}", error)
    except Exception as error:
        return Failure("crash", "".join(traceback.format_exception(error)), error)
