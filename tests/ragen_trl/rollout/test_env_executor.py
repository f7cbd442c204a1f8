"""EnvExecutor: what runs beside what, and what a late answer and an exit leave; results and crashes: `test_loop.py`."""

import signal
import sys
import threading
import time
from functools import partial

import pytest

from ragen_trl.rollout import env_executor
from ragen_trl.rollout.env_executor import EnvExecutor, Failure

NEVER = 60.0  # seconds: a test that waits so long has failed


def stuck_at(gate: threading.Event) -> str:
    gate.wait(NEVER)
    return "late"


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
