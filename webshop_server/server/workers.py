"""Serving from one process, or from several that share the socket and the sessions.

With one worker everything is in this process. With several, a parent binds the socket and forks; the kernel gives each
connection to a worker that has time, and the sessions lie in a file that all workers open (`shared_sessions.py`), so
nothing needs to know which worker served a session before. A worker that dies is replaced; its clients see a broken
connection and may ask again. A replacement that dies or fails while it starts is a death like another: it is tried
again a little later, until there are too many deaths in a short time. Where the parent dies, the workers stop.
"""

import logging
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from flask import Flask

from webshop_server.server.listening import STOP_SIGNALS, ServeError, Serving, bind, listen
from webshop_server.server.metrics import Metrics, shared_table
from webshop_server.server.sessions import SessionStore, Tokens
from webshop_server.server.shared_sessions import SharedSessions

_MOST_DEATHS, _DEATHS_SECONDS = 5, 20.0
_PAUSE = 0.5  # seconds before a worker that died while it was starting is started again
_LOOK_SECONDS = 0.05  # how long a death may go unnoticed
_READY = "ready"
_MESSAGE_BYTES = 4096  # a pipe takes as many in one piece
_log = logging.getLogger(__name__)

MakeApp = Callable[[SessionStore[Any] | None, Tokens | None, Metrics], Flask]
"""Makes the application of one process; None and None keep sessions in it."""


def serve(serving: Serving, make_app: MakeApp, ready: Callable[[str, Flask | None], None]) -> None:
    """Serves until a signal comes: SIGTERM or SIGINT.

    Args:
        serving: How.
        make_app: Makes the application of one process.
        ready: Told the address once requests are answered, and the application where it is in this process.

    Raises:
        ServeError: If the address is taken or a worker cannot start.
        Exception: What `make_app` raises, with one worker.
    """
    listener = bind(serving.host, serving.port)
    with listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if serving.workers == 1:
            metrics = Metrics()
            app = make_app(None, None, metrics)
            listen(app, listener, serving, metrics, lambda: ready(address, app))
        elif sys.platform == "win32":
            raise ServeError("several workers need a system with fork; use --workers 1")
        else:
            with tempfile.TemporaryDirectory(prefix="webshop-") as folder:
                _Parent(serving, make_app, listener, Path(folder)).run(lambda: ready(address, None))


class _Parent:
    """The process that starts the workers and starts them again."""

    def __init__(self, serving: Serving, make_app: MakeApp, listener: socket.socket, folder: Path) -> None:
        self._serving, self._make_app, self._listener = serving, make_app, listener
        self._sessions = folder / "sessions.sqlite"
        self._secret = secrets.token_bytes(32)
        self._table = shared_table(serving.workers)
        self._workers: dict[int, int] = {}  # number by process id
        self._starting: dict[int, int] = {}  # the pipe in which one says how its start went, by process id
        self._due: dict[int, float] = {}  # when to start one again, by its number
        self._stopping = False
        self._lifeline = os.pipe()  # workers read it; it ends with this process
        self._orphaned = False
        self._deaths: list[float] = []

    def run(self, ready: Callable[[], None]) -> None:
        """Starts all workers, the first one alone: it may have files to build, and it finds what is wrong.

        Raises:
            ServeError: If a worker cannot start the first time, with its own line, or workers die too often.
        """
        before = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        try:
            for worker in range(self._serving.workers):
                self._fork(worker)
                while not self._stopping and any(self._workers[process] == worker for process in self._starting):
                    self._look(first=worker)
            if not self._stopping:
                ready()
            while not self._stopping:
                self._look()
        finally:
            self._stop(signal.SIGTERM, None)
            while self._workers:
                self._workers.pop(os.wait()[0], None)
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in (*self._lifeline, *self._starting.values()):
                os.close(end)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        for process in self._workers:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def _fork(self, worker: int) -> None:
        """Forks a worker; `_look` hears how its start went.

        Raises:
            OSError: If the system has no room for another process.
        """
        told, tell = os.pipe()
        os.set_blocking(told, False)
        process = -1
        # A signal between fork and the first line of the child would run this process's handler there.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process = -1 if self._stopping else os.fork()
            if process == 0:
                os.close(told)
                os.close(self._lifeline[1])
                os._exit(self._work(worker, tell))
            if process > 0:
                self._workers[process], self._starting[process] = worker, told
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            os.close(tell)
            if process < 0:
                os.close(told)

    def _look(self, first: int | None = None) -> None:
        """Starts what is due, and waits a moment for starts and deaths.

        Args:
            first: Number of the worker that starts for the first time, if one does.

        Raises:
            ServeError: If that one cannot start, or workers die too often.
        """
        for worker in [worker for worker, when in self._due.items() if time.monotonic() >= when]:
            del self._due[worker]
            try:
                self._fork(worker)
            except OSError as error:
                self._died(worker, str(error), _PAUSE)
        heard = select.select(list(self._starting.values()), [], [], _LOOK_SECONDS)[0]
        for process in [process for process, pipe in self._starting.items() if pipe in heard]:
            message = self._hear(process)
            if message != _READY:
                self._bury(process, os.waitpid(process, 0)[1], message, first)
        while not self._stopping and self._workers:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            self._bury(ended, status, self._hear(ended) if ended in self._starting else _READY, first)

    def _hear(self, process: int) -> str:
        """What a worker says of its start, which is then over: "ready", what went wrong, or "" if it just died."""
        with os.fdopen(self._starting.pop(process), "rb", buffering=0) as pipe:
            return (pipe.read(_MESSAGE_BYTES) or b"").decode("utf-8", "replace")

    def _bury(self, process: int, status: int, message: str, first: int | None) -> None:
        """Notes that a worker has ended, after it said `message` of its start."""
        worker = self._workers.pop(process, None)
        if worker is None or self._stopping:
            return
        if message == _READY:
            self._died(worker, f"{os.waitstatus_to_exitcode(status)}", 0.0)
        elif worker == first:
            raise ServeError(message or "a worker died while it was starting; see the log")
        else:
            self._died(worker, f"{message or os.waitstatus_to_exitcode(status)}, while it was starting", _PAUSE)

    def _died(self, worker: int, how: str, pause: float) -> None:
        """Counts a death, and notes when another worker is to start in its place."""
        now = time.monotonic()
        self._deaths = [*(death for death in self._deaths if now - death < _DEATHS_SECONDS), now]
        if len(self._deaths) > _MOST_DEATHS:
            raise ServeError(f"workers died {len(self._deaths)} times in {_DEATHS_SECONDS:.0f} seconds; giving up")
        _log.warning("worker %d ended (%s); starting another", worker, how)
        self._due[worker] = now + pause

    def _work(self, worker: int, tell: int) -> int:
        """The life of a worker; returns its exit status."""
        said = False

        def say(message: str) -> None:
            nonlocal said
            if not said:  # once it serves, nobody listens
                said = True
                os.write(tell, message.encode("utf-8", "replace")[:_MESSAGE_BYTES])
                os.close(tell)

        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        threading.Thread(target=self._follow_parent, daemon=True).start()
        try:
            sessions: SharedSessions[Any] = SharedSessions(
                self._sessions, self._serving.max_sessions, self._serving.ttl
            )
            metrics = Metrics(self._table, worker)
            app = self._make_app(sessions, Tokens(self._secret), metrics)
            listen(app, self._listener, self._serving, metrics, lambda: say(_READY))
            sessions.close()
            if self._orphaned:
                shutil.rmtree(self._sessions.parent, ignore_errors=True)
        except Exception as error:
            _log.debug("worker %d", worker, exc_info=error)
            say(f"{error}")
            return 2
        return 0

    def _follow_parent(self) -> None:
        os.read(self._lifeline[0], 1)
        self._orphaned = True
        os.kill(os.getpid(), signal.SIGTERM)
