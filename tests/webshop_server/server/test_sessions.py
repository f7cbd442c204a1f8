"""Sessions in memory and in a file: one behaviour, bounded in number and time, one change at a time."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from webshop_server.server.sessions import Sessions, SessionStore, UnknownSessionError
from webshop_server.server.shared_sessions import SharedSessions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Make = Callable[..., SessionStore[int]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Make:
    def in_memory(max_sessions: int = 10, ttl: float = 60.0) -> SessionStore[int]:
        return Sessions(max_sessions, ttl, clock)

    def in_file(max_sessions: int = 10, ttl: float = 60.0) -> SessionStore[int]:
        return SharedSessions(tmp_path / "sessions.sqlite", max_sessions, ttl, clock)

    return in_memory if request.param == "memory" else in_file


def test_a_session_is_kept_changed_and_removed(make: Make) -> None:
    sessions = make()
    sessions.put("a", 1)
    sessions.put("b", 2)
    assert sessions.update("a", lambda value: (value + 10, "said")) == "said"
    assert (sessions.get("a"), sessions.get("b"), len(sessions)) == (11, 2, 2)
    sessions.put("a", 5)
    assert (sessions.get("a"), len(sessions)) == (5, 2)
    assert (sessions.remove("a"), sessions.remove("a"), len(sessions)) == (True, False, 1)
    with pytest.raises(UnknownSessionError):
        sessions.get("a")
    with pytest.raises(UnknownSessionError):
        sessions.update("a", lambda value: (value, None))


def test_a_session_that_is_not_used_is_forgotten(make: Make, clock: Clock) -> None:
    sessions = make(ttl=60)
    sessions.put("a", 1)
    clock.now += 59
    sessions.get("a")
    clock.now += 59
    assert len(sessions) == 1
    clock.now += 2
    assert len(sessions) == 0
    with pytest.raises(UnknownSessionError):
        sessions.get("a")


def test_no_change_is_lost_when_changes_are_slow(make: Make) -> None:
    """Changes of a few instructions hardly ever meet, so that a store without locks passed the test above."""
    sessions = make()
    sessions.put("a", 0)

    def slow(value: int) -> tuple[int, None]:
        time.sleep(0.002)
        return value + 1, None

    at_once(lambda: [sessions.update("a", slow) for _ in range(5)])
    assert sessions.get("a") == 20


def at_once(do: Callable[[], object]) -> None:
    threads = [threading.Thread(target=do) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_session_begins_where_there_is_none_or_it_is_over(make: Make, clock: Clock) -> None:
    sessions = make(max_sessions=2, ttl=60)

    def over(value: int) -> bool:
        return value < 0

    assert sessions.begin("a", 1, over) == (1, True)
    assert sessions.begin("a", 2, over) == (1, False)
    sessions.update("a", lambda value: (-value, None))
    assert sessions.begin("a", 3, over) == (3, True)
    clock.now += 61
    assert sessions.begin("a", 4, over) == (4, True)
    sessions.put("b", 5)
    clock.now += 1
    assert sessions.begin("a", 6, over) == (4, False)  # it counts as used: "b" is the older one now
    clock.now += 1
    assert sessions.begin("c", 7, over) == (7, True)
    assert (len(sessions), sessions.get("a"), sessions.get("c")) == (2, 4, 7)


def count_in_file(path: str) -> None:
    sessions: SharedSessions[int] = SharedSessions(path)
    for _ in range(50):
        sessions.update("a", lambda value: (value + 1, None))


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    sessions: SharedSessions[int] = SharedSessions(path)
    sessions.put("a", 0)
    assert path.stat().st_mode & 0o077 == 0
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=count_in_file, args=(str(path),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sessions.get("a") == 100
