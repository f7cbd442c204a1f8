"""EnvExecutor: what runs beside what, what a failure leaves, and that nothing depends on the number of threads."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

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
    deadline = time.monotonic() + 10
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


def test_a_call_that_waits_holds_no_later_one_up() -> None:
    """It is the only one that waits, and the others are done before it."""
    others = threading.Barrier(4, timeout=NEVER)
    calls = [others.wait, *[lambda: threading.Thread(target=others.wait).start()] * 3]
    assert EnvExecutor(2).run(calls)[1:] == [None] * 3


def test_calls_that_compute_stay_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody looks, which is after two milliseconds; threads would only take turns on the interpreter."""
    monkeypatch.setattr(env_executor, "_PATIENCE", NEVER)
    # A process that has to wait for its core looks as if its calls waited; here they compute all the time.
    monkeypatch.setattr(env_executor.time, "thread_time", time.monotonic)
    executor, began = EnvExecutor(), time.monotonic()
    first, again = (set(executor.run([threading.get_ident] * 500)) for _ in range(2))
    assert len(first) == 1
    assert first != {threading.get_ident()}
    assert again == {threading.get_ident()}  # where one thread was enough, none is
    assert time.monotonic() - began < NEVER / 2  # woken by the last call


def test_calls_between_which_nothing_is_seen_to_wait_stay_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of such a thread runs as fast as the one on the wall, however often the batch is looked at."""
    monkeypatch.setattr(env_executor._Batch, "mostly_waits", False)

    def spin() -> int:
        until = time.monotonic() + 2e-4
        while time.monotonic() < until:
            pass
        return threading.get_ident()

    executor = EnvExecutor()
    monkeypatch.setattr(env_executor, "_PATIENCE", 0.2)  # progress within it, even where other processes take the core
    assert len(set(executor.run([spin] * 1500))) == 1


def test_short_waits_bring_in_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is over before anyone looks; one after the other they would take more than a second."""
    monkeypatch.setattr(env_executor, "_PATIENCE", 0.3)  # some call is over within it, however busy the machine

    def nap() -> int:
        time.sleep(0.01)
        return threading.get_ident()

    assert len(set(EnvExecutor(32).run([nap] * 128))) > 8


def test_no_workers_means_the_callers_thread() -> None:
    assert set(EnvExecutor(0).run([threading.get_ident] * 3)) == {threading.get_ident()}


def test_there_are_never_more_at_once_than_workers() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=NEVER)

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        time.sleep(0.005)
        with lock:
            running -= 1

    assert EnvExecutor(3).run([call] * 12) == [None] * 12
    assert most == 3


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


def test_calls_behind_hanging_ones_get_their_turn(gate: threading.Event) -> None:
    """Every thread there may be hangs; those that take their places hang, too; the last calls are made all the same."""
    calls = [partial(stuck_at, gate)] * 6 + [lambda: "done"] * 3
    outcomes = EnvExecutor(2, timeout=0.05).run(calls)
    assert [getattr(outcome, "kind", outcome) for outcome in outcomes] == ["timeout"] * 6 + ["done"] * 3


def test_the_time_limit_counts_from_the_beginning_of_each_call() -> None:
    """Six tenths of a second one after the other, of which each call takes one."""
    assert EnvExecutor(1, timeout=0.5).run([partial(time.sleep, 0.1)] * 6) == [None] * 6


@pytest.mark.parametrize("workers", [0, 4])
def test_an_exit_goes_where_the_batch_was_run(workers: int) -> None:
    """`sys.exit` and Ctrl-C are no faults of an environment."""
    executor = EnvExecutor(workers)
    with pytest.raises(SystemExit, match="enough"):
        executor.run([partial(sys.exit, "enough"), *[lambda: 1] * 3])
    assert executor.run([lambda: 1] * 3) == [1] * 3


def test_what_has_not_begun_when_the_run_is_interrupted_never_does(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    executor = EnvExecutor(1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EnvExecutor, "_pause", lambda *_: begun and interrupt() or 0.01)
        executor.run([lambda: (begun.append("first"), stuck_at(gate)), lambda: begun.append("second")])
    gate.set()
    assert executor.run([lambda: "later"]) == ["later"]
    assert begun == ["first"]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_each_kind_of_failure_is_logged_once(caplog: pytest.LogCaptureFixture, gate: threading.Event) -> None:
    executor = EnvExecutor(4, timeout=0.1)
    for _ in range(3):
        executor.run([partial(crash, 1), partial(int, "no number"), partial(crash, 2)])
    executor.run([partial(stuck_at, gate)])
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    first, second, third = (record.getMessage() for record in caplog.records)
    assert "ZeroDivisionError" in first
    assert "ValueError: invalid literal" in second
    assert "(timeout)" in third


def test_threads_end_with_their_executor() -> None:
    before = set(threading.enumerate())
    executor = EnvExecutor(8)
    executor.run([threading.Barrier(8, timeout=NEVER).wait] * 8)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 8
    del executor
    gc.collect()
    until(lambda: not any(thread.is_alive() for thread in threads))


def test_threads_without_work_keep_nothing_alive() -> None:
    class Environment:
        def step(self, together: threading.Barrier) -> None:
            together.wait()

    executor, together = EnvExecutor(4), threading.Barrier(4, timeout=NEVER)
    envs = [Environment() for _ in range(4)]
    alive = [weakref.ref(env) for env in envs]
    assert executor.run([partial(env.step, together) for env in envs]) == [None] * 4
    del envs
    until(lambda: not any(ref() for ref in alive))


def test_a_hanging_call_keeps_no_process_alive(root: Path) -> None:
    code = (
        "import threading; from ragen_trl.rollout.env_executor import EnvExecutor\n"
        "(failure,) = EnvExecutor(2, timeout=0.05).run([threading.Event().wait]); print(failure.kind)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=NEVER)
    assert (done.returncode, done.stdout) == (0, "timeout\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "workers is -1; give a number of threads, or 0"),
        ({"timeout": 0.0}, "timeout is 0.0; give seconds above 0, or None"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"workers": 0, "timeout": 2.0}, "timeout is 2.0 and workers is 0; a time limit needs a thread"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnvExecutor(**arguments)  # type: ignore[arg-type]


def busy(seconds: float) -> int:
    """Computes for that long, whatever else runs; in which thread."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return threading.get_ident()


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="this system does not tell a thread's CPU time")
def test_calls_that_compute_for_long_stay_in_one_thread_and_within_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: they were taken for waiting, so all threads joined, shared one interpreter and exceeded the limit.

    The executor's clock is this process's CPU time here, which stands still while other processes have the cores.
    """
    monkeypatch.setattr(env_executor, "time", SimpleNamespace(**{**vars(time), "monotonic": time.process_time}))
    outcomes = EnvExecutor(64, timeout=1.0).run([partial(busy, 0.03)] * 40)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(set(outcomes)) <= 3


def test_an_exit_among_calls_that_end_at_the_same_time_comes_through() -> None:
    """One thread ended the batch while another one settled, and the run waited for ever."""
    executor, nap = EnvExecutor(32), partial(time.sleep, 0.004)
    for _ in range(40):
        with pytest.raises(SystemExit):
            executor.run([*[nap] * 20, partial(sys.exit, "enough"), *[nap] * 20])
    assert executor.run([lambda: 1] * 3) == [1] * 3


def test_threads_that_an_interrupt_leaves_in_a_call_are_not_counted_on(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = EnvExecutor(1, timeout=60)
    begun: list[int] = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EnvExecutor, "_pause", lambda *_: begun and interrupt() or 0.01)
        executor.run([lambda: (begun.append(1), stuck_at(gate))])
    assert executor.run([lambda: "later"]) == ["later"]  # although the first call still hangs


def test_calls_that_begin_to_wait_get_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_executor, "_PATIENCE", 0.01)
    executor, here = EnvExecutor(), threading.get_ident()

    def nap() -> int:
        time.sleep(0.1)
        return threading.get_ident()

    quick = [executor.run([threading.get_ident] * 50) for _ in range(2)]
    assert set(quick[1]) == {here}
    first, *others = executor.run([nap] * 20)
    assert first == here and here not in [*others, *executor.run([nap] * 20)]  # the first one showed it
