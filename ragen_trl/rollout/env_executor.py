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
from typing import TypeVar

from ragen_envs import EnvError
from ragen_trl.config.options import DEFAULT_WORKERS

logger = logging.getLogger(__name__)

FAILURES = ("crash", "timeout")
"""Values of `Failure.kind`: an exception, or no answer within the time limit."""
_PATIENCE = 0.002  # seconds after which calls that still wait get more threads
_LOOK = 0.05  # seconds after which the calls that run are looked at, if they have a time limit

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A call that failed: a crash with its exception, or one that hangs, without."""

    kind: str  # one of FAILURES
    text: str  # the traceback, or the message of an EnvError; for a call that hangs, the stack of its thread
    error: BaseException | None = field(default=None, compare=False)


class EnvExecutor:
    """Runs batches of calls. The results do not depend on the number of threads.

    A call may run in any thread, so no two calls of a batch may use the same environment. Threads that hang are
    abandoned; they do not keep the process alive.

    Args:
        workers: Number of threads at most. 0 runs the calls one after the other in the thread that calls `run`, for
            environments that only one thread may use.
        timeout: Seconds that a call may take, measured on the wall clock from its start; ``None`` for no limit. It
            needs a thread.
    """

    def __init__(self, workers: int = DEFAULT_WORKERS, timeout: float | None = None) -> None:
        self.workers, self.timeout = workers, timeout
        self._logged: set[tuple[str, str]] = set()

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """What each call returns, or its `Failure`, in order. The first failure of every kind is logged."""
        if not self.workers:
            return [self.attempt(call) for call in calls]
        waiting, outcomes = deque(enumerate(calls)), dict[int, T | Failure]()
        running: dict[int, tuple[float, int]] = {}  # began when, in which thread; who takes a call out finishes it
        over = threading.Event()  # set at the end alone: waking this thread would slow the others down

        def work() -> None:
            while waiting:
                try:
                    index, call = waiting.popleft()
                except IndexError:  # another thread has taken the last call
                    return
                running[index] = time.monotonic(), threading.get_ident()
                outcome = self.attempt(call)
                if running.pop(index, None) is None:
                    return  # this thread was abandoned
                outcomes[index] = outcome
                if len(outcomes) == len(calls):
                    over.set()

        threads = 0  # without abandoned ones
        look = None if self.timeout is None else min(self.timeout, _LOOK)
        try:
            while len(outcomes) < len(calls):
                for _ in range(min(max(1, 3 * threads), self.workers - threads, len(waiting))):
                    threading.Thread(target=work, name="environment", daemon=True).start()
                    threads += 1
                over.wait(_PATIENCE if waiting and threads < self.workers else look)
                for index, (began, thread) in list(running.items()):
                    late = self.timeout is not None and time.monotonic() - began >= self.timeout
                    if late and running.pop(index, None) is not None:
                        frame = sys._current_frames().get(thread)
                        stack = "".join(traceback.format_stack(frame)) if frame else "(its thread is gone)\n"
                        text = f"no answer within {self.timeout:g} s; the call is at\n{stack}"
                        outcomes[index] = self._failed("timeout", text)
                        threads -= 1
        finally:
            waiting.clear()  # after Ctrl-C no call begins any more
        return [outcomes[index] for index in range(len(calls))]

    def attempt(self, call: Callable[[], T]) -> T | Failure:
        """What one call returns, or its `Failure`: run in this thread and without the time limit."""
        try:
            return call()
        except EnvError as error:  # its message says what to do, and where it was raised is of no use
            notes = getattr(error, "__notes__", ())
            return self._failed("crash", "\n".join([f"{type(error).__name__}: {error}", *notes]), error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: an environment must not end the run
            return self._failed("crash", "".join(traceback.format_exception(error)), error)

    def _failed(self, kind: str, text: str, error: BaseException | None = None) -> Failure:
        if (kind, type(error).__name__) not in self._logged:
            self._logged.add((kind, type(error).__name__))
            logger.warning("an environment failed (%s); others like it are not shown:\n%s", kind, text)
        return Failure(kind, text, error)
