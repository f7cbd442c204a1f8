"""EnvExecutor: what runs beside what, what a failure leaves, and that nothing depends on the number of threads."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ragen_trl.rollout import env_executor
from ragen_trl.rollout.env_executor import EnvExecutor, Failure

NEVER = 60.0  # seconds: a test that waits so long has failed


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds calls back until the test is over, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def stuck_at(gate: threading.Event) -> str:
    gate.wait(NEVER)
    return "late"


def crash(where: int) -> int:
    return where // 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 1, 3, 200])
def test_results_come_in_the_order_of_the_calls(workers: int) -> None:
    executor = EnvExecutor(workers)
    waits = [0.0, 0.01, 0.0, 0.02, 0.005] * 4
    calls = [partial(lambda row, wait: (time.sleep(wait), row)[1], row, wait) for row, wait in enumerate(waits)]
    assert executor.run(calls) == list(range(20))
    assert executor.run(calls[::-1]) == list(range(20))[::-1]
    assert executor.run([]) == []


def test_calls_that_wait_run_side_by_side() -> None:
    """Each waits for all others: one after the other none would come through."""
    everyone = threading.Barrier(64, timeout=NEVER)
    assert sorted(EnvExecutor(64).run([everyone.wait] * 64)) == list(range(64))


def test_calls_that_do_not_wait_stay_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody looks, which is after two milliseconds; threads would only take turns on the interpreter."""
    monkeypatch.setattr(env_executor, "_PATIENCE", NEVER)
    executor, began = EnvExecutor(), time.monotonic()
    assert len(set(executor.run([threading.get_ident] * 500))) == 1
    assert time.monotonic() - began < NEVER / 2  # woken by the last call


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_a_crash_is_the_result_of_its_call_alone(workers: int) -> None:
    first, failure, last = EnvExecutor(workers).run([partial(divmod, 7, 2), partial(crash, 5), partial(divmod, 9, 4)])
    assert (first, last) == ((3, 1), (2, 1))
    assert isinstance(failure, Failure)
    assert (failure.kind, type(failure.error)) == ("crash", ZeroDivisionError)
    assert "in crash\n    return where // 0" in failure.text
    assert failure.text.endswith("ZeroDivisionError: integer division or modulo by zero\n")


def test_a_call_over_its_time_is_left_behind_and_says_where_it_is(gate: threading.Event) -> None:
    executor = EnvExecutor(4, timeout=0.1)
    failure, after = executor.run([partial(stuck_at, gate), lambda: "done"])
    assert after == "done"
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.error) == ("timeout", None)
    assert failure.text.startswith("no answer within 0.1 s")
    assert "in stuck_at" in failure.text


def test_an_answer_that_comes_too_late_reaches_nobody(gate: threading.Event) -> None:
    executor = EnvExecutor(2, timeout=0.05)
    (failure,) = executor.run([partial(stuck_at, gate)])
    assert isinstance(failure, Failure)
    gate.set()
    for _ in range(50):
        assert executor.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]


@pytest.mark.usefixtures("python_handles_interrupts")
def test_what_has_not_begun_when_the_run_is_interrupted_never_does(gate: threading.Event) -> None:
    begun: list[str] = []

    def interrupts() -> None:
        begun.append("first")
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)
        stuck_at(gate)

    executor = EnvExecutor(1)
    with pytest.raises(KeyboardInterrupt):
        executor.run([interrupts, lambda: begun.append("second")])
    gate.set()
    assert executor.run([lambda: "later"]) == ["later"]
    assert begun == ["first"]


def test_an_environment_that_exits_ends_its_own_call() -> None:
    failure, after = EnvExecutor(2).run([sys.exit, lambda: "done"])
    assert isinstance(failure, Failure)
    assert (failure.kind, type(failure.error), after) == ("crash", SystemExit, "done")
