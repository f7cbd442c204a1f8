"""Serving on a socket: one process, or several that share the socket and the sessions.

With one worker everything is in this process. With several, a parent binds the socket and forks; the kernel gives each
connection to a worker that has time, and the sessions lie in a file that all workers open (`shared_sessions.py`), so
nothing needs to know which worker served a session before. A worker that dies is replaced; its clients see a broken
connection and may ask again. Where the parent dies, the workers stop.
"""

import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import waitress  # type: ignore[import-untyped]
from flask import Flask

from webshop_server.metrics import Metrics, shared_table
from webshop_server.sessions import SessionStore, Tokens
from webshop_server.shared_sessions import SharedSessions
from webshop_server.validation import MAX_BODY

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TICK = 0.05
_IDLE_TICKS = 3  # without a request before a stopping server leaves, so that answers get out
_STOP_SECONDS = 10.0
_CONNECTIONS = 1000
_MOST_DEATHS, _DEATHS_SECONDS = 5, 20.0
_log = logging.getLogger(__name__)

MakeApp = Callable[[SessionStore[Any] | None, Tokens | None, Metrics], Flask]
"""Makes the application of one process; None and None keep sessions in it."""


class ServeError(Exception):
    """The server cannot start; the message is one line for whoever started it."""


@dataclass(frozen=True)
class Serving:
    """How to serve.

    Attributes:
        host: Name or address to bind to.
        port: Port; 0 takes a free one.
        workers: Number of processes.
        threads: Threads in each.
        max_sessions: How many sessions all of them keep.
        ttl: Seconds without use after which one is forgotten.
    """

    host: str
    port: int
    workers: int
    threads: int
    max_sessions: int
    ttl: float


def bind(host: str, port: int) -> socket.socket:
    """Takes an address without listening yet, so that nobody waits for a server that is still loading.

    Args:
        host: Name or address.
        port: Port; 0 takes a free one.

    Returns:
        A bound socket.

    Raises:
        ServeError: If the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except (OSError, OverflowError) as error:
        raise ServeError(_no_address(host, port, error)) from error
    return taken


def _no_address(host: str, port: int, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot serve at {host}:{port}: {reason}; choose another --port or --host"


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
            _run(app, listener, serving, metrics, lambda: ready(address, app))
        elif sys.platform == "win32":
            raise ServeError("several workers need a system with fork; use --workers 1")
        else:
            with tempfile.TemporaryDirectory(prefix="webshop-") as folder:
                _Parent(serving, make_app, listener, Path(folder)).run(lambda: ready(address, None))


def _run(app: Flask, listener: socket.socket, serving: Serving, metrics: Metrics, ready: Callable[[], None]) -> None:
    """Serves in this process until a signal comes, then answers what has come and returns."""
    try:
        server = waitress.create_server(
            app,
            sockets=[listener],
            threads=serving.threads,
            connection_limit=_CONNECTIONS,
            max_request_body_size=MAX_BODY,
            asyncore_use_poll=True,
            ident="webshop",
        )
    except OSError as error:
        raise ServeError(_no_address(serving.host, serving.port, error)) from error
    idle, deadline = 0, 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal deadline
        if not metrics.stopping:
            metrics.stopping = True
            deadline = time.monotonic() + _STOP_SECONDS
            signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)

    def tick(number: int, frame: FrameType | None) -> None:
        nonlocal idle
        idle = 0 if metrics.in_flight else idle + 1
        if idle >= _IDLE_TICKS or time.monotonic() > deadline:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise SystemExit(0)  # waitress takes it as the end of its loop

    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, tick)
    try:
        ready()
        server.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.close()


class _Parent:
    """The process that starts the workers and starts them again."""

    def __init__(self, serving: Serving, make_app: MakeApp, listener: socket.socket, folder: Path) -> None:
        self._serving, self._make_app, self._listener = serving, make_app, listener
        self._sessions = folder / "sessions.sqlite"
        self._secret = secrets.token_bytes(32)
        self._table = shared_table(serving.workers)
        self._workers: dict[int, int] = {}  # number by process id
        self._stopping = False
        self._lifeline = os.pipe()  # workers read it; it ends with this process
        self._orphaned = False
        self._deaths: list[float] = []

    def run(self, ready: Callable[[], None]) -> None:
        """Starts all workers, the first one alone: it may have files to build, and it finds what is wrong."""
        before = {number: signal.signal(number, self._stop) for number in _STOP_SIGNALS}
        try:
            for worker in range(self._serving.workers):
                self._start(worker)
            if not self._stopping:
                ready()
            while self._workers:
                self._wait()
        finally:
            self._stop(signal.SIGTERM, None)
            while self._workers:
                self._wait()
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in self._lifeline:
                os.close(end)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        for process in self._workers:
            os.kill(process, signal.SIGTERM)

    def _start(self, worker: int) -> None:
        """Forks a worker and waits until it serves.

        Raises:
            ServeError: With the worker's own line, if it could not start.
        """
        if self._stopping:
            return
        told, tell = os.pipe()
        # A signal between fork and the first line of the child would run this process's handler there.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        process = os.fork()
        if process == 0:
            os.close(told)
            os.close(self._lifeline[1])
            os._exit(self._work(worker, tell))
        self._workers[process] = worker
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            message = pipe.read().decode("utf-8", "replace")
        if message != "ready" and not self._stopping:
            raise ServeError(message or "a worker died while it was starting; see the log")

    def _work(self, worker: int, tell: int) -> int:
        """The life of a worker; returns its exit status."""

        def say(message: str) -> None:
            os.write(tell, message.encode())
            os.close(tell)

        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        threading.Thread(target=self._follow_parent, daemon=True).start()
        try:
            sessions: SharedSessions[Any] = SharedSessions(
                self._sessions, self._serving.max_sessions, self._serving.ttl
            )
            metrics = Metrics(self._table, worker)
            app = self._make_app(sessions, Tokens(self._secret), metrics)
            _run(app, self._listener, self._serving, metrics, lambda: say("ready"))
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

    def _wait(self) -> None:
        """Waits for a worker to end, and starts another in its place."""
        process, status = os.wait()
        worker = self._workers.pop(process, None)
        if worker is None or self._stopping:
            return
        now = time.monotonic()
        self._deaths = [*(death for death in self._deaths if now - death < _DEATHS_SECONDS), now]
        if len(self._deaths) > _MOST_DEATHS:
            raise ServeError(f"workers died {len(self._deaths)} times in {_DEATHS_SECONDS:.0f} seconds; giving up")
        _log.warning("worker %d ended (%s); starting another", worker, os.waitstatus_to_exitcode(status))
        self._start(worker)
