"""Run calls to environments side by side, within a time limit; one that raises or hangs returns a `Failure`.

One thread starts alone: threads of one Python process share its interpreter, so environments that only compute are then
as fast as in a loop. If calls are seen to wait (for a server, a disk), more threads join, and a batch takes about as
long as its slowest call. After a batch that one thread could do alone, the next runs without any thread, up to the
first call that waits. With a time limit there is always a thread, because only a thread can be abandoned; a thread that
hangs cannot be stopped, and its environment must not be used again.
"""

import logging
import queue
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ragen_envs import EnvError
from ragen_trl.config.options import DEFAULT_WORKERS

logger = logging.getLogger(__name__)

FAILURES = ("crash", "timeout")
"""Values of `Failure.kind`: an exception, or no answer within the time limit."""
_PATIENCE = 0.002  # seconds after which the executor checks whether calls wait

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
        if workers < 0:
            raise ValueError(f"workers is {workers}; give a number of threads, or 0 for none")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}; give seconds above 0, or None for no limit")
        if timeout is not None and not workers:
            raise ValueError(f"timeout is {timeout} and workers is 0; a time limit needs a thread, so give 1 or more")
        self.workers, self.timeout = workers, timeout
        self._alone = workers == 0  # whether no call is expected to wait
        self._threads = 0  # threads alive, without abandoned ones
        self._tickets: queue.SimpleQueue[_Batch[Any] | None] = queue.SimpleQueue()
        self._warned: set[tuple[str, str]] = set()
        weakref.finalize(self, self._tickets.put, None)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """What each call returns, or its `Failure`, in order. The first failure of every kind is logged."""
        outcomes = self._run_here(calls) if self._alone else []
        if len(outcomes) < len(calls):
            batch = _Batch(calls[len(outcomes) :])
            try:
                helping = self._watch(batch)
            finally:
                self._threads -= batch.abandon()  # after Ctrl-C the threads must not continue or be counted
            outcomes += batch.outcomes
            self._alone = helping == 1 and len(calls) > 1 and self.timeout is None and not batch.mostly_waits
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                self._warn(outcome)
        return outcomes

    def attempt(self, call: Callable[[], T]) -> T | Failure:
        """What one call returns, or its `Failure`: run in this thread and without the time limit."""
        outcome = _attempt(call)
        if isinstance(outcome, Failure):
            self._warn(outcome)
        return outcome

    def _run_here(self, calls: Sequence[Callable[[], T]]) -> list[T | Failure]:
        """Run calls in this thread: all of them, or up to the first one that waits if threads can take over."""
        outcomes: list[T | Failure] = []
        for call in calls:
            began, cpu = time.monotonic(), time.thread_time()
            outcomes.append(_attempt(call))
            seconds = time.monotonic() - began
            if self.workers and seconds > _PATIENCE and time.thread_time() - cpu < seconds / 2:
                break
        return outcomes

    def _watch(self, batch: "_Batch[T]") -> int:
        """Run a batch in threads; returns how many worked on it at the end."""
        helping = 0
        with batch.changed:
            more = min(1, len(batch.waiting))
            while batch.left and batch.fault is None:
                helping += self._send(batch, helping, more)
                left = batch.left
                batch.changed.wait(self._pause(batch, helping))
                lost = 0 if self.timeout is None else batch.give_up(self.timeout)
                self._threads -= lost
                helping -= lost
                stuck = lost > 0 or (left == batch.left and batch.stands_still) or batch.mostly_waits
                more = min(self.workers - helping, len(batch.waiting)) if stuck else 0
        if batch.fault is not None:
            raise batch.fault
        return helping

    def _pause(self, batch: "_Batch[T]", helping: int) -> float | None:
        """Seconds until the next check; ``None`` to wait for the last call."""
        if batch.waiting and helping < self.workers:
            return _PATIENCE
        if self.timeout is None:
            return None
        first = min((call.began for call in batch.running.values()), default=time.monotonic())
        return max(_PATIENCE, first + self.timeout - time.monotonic())

    def _send(self, batch: "_Batch[T]", helping: int, more: int) -> int:
        for _ in range(helping + more - self._threads):
            threading.Thread(target=_work, args=(self._tickets,), name="environment", daemon=True).start()
            self._threads += 1
        for _ in range(more):
            self._tickets.put(batch)
        return more

    def _warn(self, failure: Failure) -> None:
        kind = (failure.kind, type(failure.error).__name__)
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("an environment failed (%s); others like it are not shown:\n%s", kind[0], failure.text)


@dataclass
class _Running:
    """A call in progress: when it began (`time.monotonic`), in which thread, and that thread's CPU time then."""

    began: float
    thread: int
    cpu: float


class _Batch(Generic[T]):
    """The calls of a batch, which of them run where, and their results.

    Everything is read and changed under the lock of ``changed``, which is notified when no call is left.
    """

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self.outcomes: list[Any] = [None] * len(calls)
        self.waiting = deque(range(len(calls)))
        self.running: dict[int, _Running] = {}
        self.left = len(calls)
        self.fault: BaseException | None = None
        self.changed = threading.Condition()
        self._calls = calls
        self._seconds = self._cpu_seconds = 0.0  # of the finished calls

    @property
    def mostly_waits(self) -> bool:
        """Whether the finished calls spent most of their time waiting and not computing."""
        return self._cpu_seconds < self._seconds / 2

    @property
    def stands_still(self) -> bool:
        """Whether the calls in progress have computed for less than half of the time since they began.

        On systems that do not tell (macOS, Windows), every call that takes long counts as waiting.
        """
        if not hasattr(time, "pthread_getcpuclockid"):
            return True
        now = time.monotonic()
        spent = [
            (now - call.began, time.clock_gettime(time.pthread_getcpuclockid(call.thread)) - call.cpu)
            for call in self.running.values()
        ]
        return sum(cpu for _, cpu in spent) < sum(seconds for seconds, _ in spent) / 2

    def abandon(self) -> int:
        """Start no more calls, and abandon the threads of those in progress; returns how many."""
        with self.changed:
            self.waiting.clear()
            abandoned = len(self.running)
            self.running.clear()
            return abandoned

    def work(self) -> bool:
        """Run calls until none is waiting; returns False if this thread was given up meanwhile."""
        while True:
            with self.changed:
                if not self.waiting:
                    return True
                index = self.waiting.popleft()
                cpu = time.thread_time()
                self.running[index] = _Running(time.monotonic(), threading.get_ident(), cpu)
            try:
                outcome = _attempt(self._calls[index])
            except BaseException as fault:  # such as SystemExit: it is raised again where `run` was called
                self._end(index, fault)
                return True
            if not self._settle(index, outcome, time.thread_time() - cpu):
                return False

    def _settle(self, index: int, outcome: "T | Failure", cpu_seconds: float) -> bool:
        with self.changed:
            running = self.running.pop(index, None)
            if running is None:
                return False
            self._seconds += time.monotonic() - running.began
            self._cpu_seconds += cpu_seconds
            self._resolve(index, outcome)
            return True

    def _resolve(self, index: int, outcome: "T | Failure") -> None:
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left:
            self.changed.notify()

    def _end(self, index: int, fault: BaseException) -> None:
        with self.changed:
            self.running.pop(index, None)
            self.fault = fault
            self.waiting.clear()
            self.changed.notify()

    def give_up(self, timeout: float) -> int:
        """Abandon the threads whose calls take longer; returns how many."""
        late = [index for index, call in self.running.items() if time.monotonic() - call.began >= timeout]
        for index in late:
            frame = sys._current_frames().get(self.running.pop(index).thread)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "(its thread is gone)\n"
            self._resolve(index, Failure("timeout", f"no answer within {timeout:g} s; the call is at\n{stack}"))
        return len(late)


def _attempt(call: Callable[[], T]) -> "T | Failure":
    try:
        return call()
    except EnvError as error:  # its message says what to do, and where it was raised is of no use
        return Failure("crash", f"{type(error).__name__}: {error}", error)
    except Exception as error:
        return Failure("crash", "".join(traceback.format_exception(error)), error)


def _work(tickets: "queue.SimpleQueue[_Batch[Any] | None]") -> None:
    """The loop of a thread: batch after batch, until the executor is deleted or the thread is given up."""
    while _work_on_one(tickets):
        pass


def _work_on_one(tickets: "queue.SimpleQueue[_Batch[Any] | None]") -> bool:
    """Separate from the loop so an idle thread does not keep a batch and its environments alive."""
    batch = tickets.get()
    if batch is None:
        tickets.put(None)  # for the next thread
        return False
    return batch.work()
