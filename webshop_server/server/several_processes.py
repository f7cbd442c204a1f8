"""Several worker processes, kept by gunicorn with its threaded workers.

The application is made once, before the first fork; workers share its memory, and sessions lie in an SQLite file, so
any worker serves any session. A worker that dies is replaced, until too many die in a short time. A client that stops
in the middle of a request would hold a thread; `_Worker` ends that after a few seconds. A server that strangers reach
needs a reverse proxy in front.
"""

import io
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from gunicorn.errors import HaltServer  # type: ignore[import-untyped]
from gunicorn.http.errors import (  # type: ignore[import-untyped]
    InvalidHeader,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.http.message import Request  # type: ignore[import-untyped]
from gunicorn.http.parser import RequestParser  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

from webshop_server.server.metrics import Metrics, shared_table
from webshop_server.server.serving import CONNECTIONS, STOP_SECONDS, STOP_SIGNALS, MakeApp, ServeError, Serving
from webshop_server.server.sessions import Tokens
from webshop_server.server.shared_sessions import SharedSessions
from webshop_server.server.validation import MAX_BODY

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_MOST_DEATHS, _DEATHS_SECONDS = 5, 20.0
_PAUSE = 0.5  # seconds from a start to the next one, unless nothing died since
_KEEP_ALIVE = 120  # seconds that a connection may be idle
_REQUEST_SECONDS = 3.0  # that a request may take to arrive, since it holds a thread meanwhile
_LONGEST_HEAD = 1 << 18  # bytes of a request's address, and of its headers together; waitress's limit
_MOST_HEADERS = 1 << 15  # as many as gunicorn can be told to take


def serve_with_workers(
    serving: Serving, make_app: MakeApp, listener: socket.socket, ready: Callable[[], None]
) -> None:
    """Serves from `serving.workers` processes until a signal comes.

    Args:
        serving: How.
        make_app: Makes the application, in this process.
        listener: A bound socket.
        ready: Called once the workers are there.

    Raises:
        ServeError: If the file of the sessions cannot be made, or workers die too often.
        Exception: What `make_app` raises.
    """
    folder, parent = Path(tempfile.mkdtemp(prefix="webshop-")), os.getpid()
    try:
        sessions: SharedSessions[Any] = SharedSessions(folder / "sessions.sqlite", serving.max_sessions, serving.ttl)
        _make_file(sessions)
        metrics = Metrics(shared_table(serving.workers))
        app = make_app(sessions, Tokens(secrets.token_bytes(32)), metrics)
        _Parent(_Gunicorn(app, serving, listener, metrics), ready).run()
    except SystemExit as end:
        if os.getpid() != parent or end.code:
            raise
    finally:
        # A worker ends through here, too. It leaves the folder to the parent, unless that is dead.
        if os.getpid() == parent or os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)


def _make_file(sessions: SharedSessions[Any]) -> None:
    """Makes the file of the sessions. Workers that made it at the same time could find it locked.

    It is closed again, because SQLite does not allow to use it after a fork. Each worker opens it at its first use.
    """
    try:
        sessions.open()
    except sqlite3.Error as error:
        raise ServeError(f"the file of the sessions cannot be made: {error}; set TMPDIR to another folder") from error
    sessions.close()


def with_whole_bodies(inner: "WSGIApplication") -> "WSGIApplication":
    """Reads the body of a request before the application sees the request, as waitress does.

    Gunicorn hands over the connection. Werkzeug then takes a body that breaks off for a shorter one, and silently cuts
    one that came in chunks at the application's limit. Read here, each body has a length: where it breaks off one that
    is too large, to which Werkzeug says 400, and where it came in chunks its own, so that a long one gets 413.
    """

    def outer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        told = environ.get("CONTENT_LENGTH")
        if not told or int(told) <= MAX_BODY:
            body, missing = _read(environ["wsgi.input"])
            environ["CONTENT_LENGTH"] = told or str(len(body) + missing)
            environ["wsgi.input"] = io.BytesIO(body)
            for name in ("wsgi.input_terminated", "HTTP_TRANSFER_ENCODING"):
                environ.pop(name, None)
        return inner(environ, start_response)

    return outer


def _read(stream: Any) -> tuple[bytes, int]:
    """What there is of a body, up to a byte more than `MAX_BODY`, and 1 if it breaks off or is damaged, else 0."""
    try:
        return stream.read(MAX_BODY + 1), 0
    except (OSError, ParseException):
        return b"", 1


class _Request(Request):  # type: ignore[misc]
    """Gunicorn's reader of requests, with other limits. Its own are a length and a number, so it would hold 8 GiB."""

    def parse(self, unreader: Any) -> bytes:
        """Reads address and headers; returns what came after them."""
        self.limit_request_line = self.max_buffer_headers = _LONGEST_HEAD
        rest: bytes = super().parse(unreader)
        return rest


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    """The application and its settings, as gunicorn wants them."""

    def __init__(self, app: Flask, serving: Serving, listener: socket.socket, metrics: Metrics) -> None:
        self._app, self._serving, self._metrics = app, serving, metrics
        self._descriptor = os.dup(listener.fileno())  # gunicorn closes the one that it is given
        RequestParser.mesg_class = _Request
        super().__init__()

    def load_config(self) -> None:
        """Sets what differs from gunicorn's defaults."""
        for name, value in {
            "bind": f"fd://{self._descriptor}",
            "workers": self._serving.workers,
            "threads": self._serving.threads,
            "worker_class": _Worker,
            "worker_connections": CONNECTIONS,
            "keepalive": _KEEP_ALIVE,
            "graceful_timeout": int(STOP_SECONDS),
            "limit_request_fields": _MOST_HEADERS,
            "limit_request_field_size": _LONGEST_HEAD,
            "http_parser": "python",  # the other one, where it is installed, has its own limits
            "forwarded_allow_ips": "",  # no header says which address was asked, or by whom
            "loglevel": "error",
            "control_socket_disable": True,
            "pre_fork": self._choose_row,
            "post_fork": self._begin,
        }.items():
            self.cfg.set(name, value)

    def load(self) -> "WSGIApplication":
        """The application."""
        return with_whole_bodies(self._app)

    def _choose_row(self, arbiter: Arbiter, worker: "_Worker") -> None:
        """Gives a new worker the row of the counters that no living one has."""
        taken = {other.row for other in arbiter.WORKERS.values()}
        worker.row = next(row for row in range(self._serving.workers) if row not in taken)

    def _begin(self, arbiter: Arbiter, worker: "_Worker") -> None:
        """Begins a worker's life: counts in its row, and ends at a signal that comes before it serves."""
        self._metrics.use_row(worker.row)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)


class _Parent(Arbiter):  # type: ignore[misc]
    """The parent process. It knows two signals, and after both the workers answer what has come."""

    SIGNALS = STOP_SIGNALS
    handle_int = Arbiter.handle_term
    # Gunicorn ends the server where a worker exits with one of these. No status is negative, so such a death is like
    # any other.
    WORKER_BOOT_ERROR = APP_LOAD_ERROR = -1

    def __init__(self, application: _Gunicorn, ready: Callable[[], None]) -> None:
        super().__init__(application)
        self._ready: Callable[[], None] | None = ready
        self._living = 0  # workers after the last look
        self._deaths: list[float] = []  # when, of late
        self._started = -_PAUSE

    def manage_workers(self) -> None:
        """Starts the workers that are missing, a little later where one died just after a start.

        Gunicorn calls it when a worker has died, and once a second.

        Raises:
            HaltServer: If workers die too often.
        """
        now = time.monotonic()
        self._note(self._living - len(self.WORKERS), now)
        if len(self.WORKERS) < self.num_workers and now - self._started >= _PAUSE:
            self._started = now
            try:
                super().manage_workers()
            except OSError as error:  # no room for another process
                self.log.error("A worker cannot be started: %s", error)
                self._note(1, now)
        self._living = len(self.WORKERS)
        if self._ready is not None and self._living == self.num_workers:
            self._ready()
            self._ready = None

    def _note(self, deaths: int, now: float) -> None:
        self._deaths = [*(death for death in self._deaths if now - death < _DEATHS_SECONDS), *[now] * deaths]
        if len(self._deaths) > _MOST_DEATHS:
            raise HaltServer(f"workers died {len(self._deaths)} times in {_DEATHS_SECONDS:.0f} seconds; giving up")

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Stops the workers and ends.

        Raises:
            SystemExit: After a signal.
            ServeError: If there is a reason.
        """
        if reason is None:
            super().halt()
        self.stop()
        raise ServeError(reason)


class _Worker(ThreadWorker):  # type: ignore[misc]
    """A worker process."""

    row: int

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._deadlines: dict[TConn, float] = {}  # of the requests that threads have in hand

    def init_signals(self) -> None:
        """Leaves Ctrl-C, which a terminal sends to all processes, to the parent."""
        super().init_signals()
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def handle(self, conn: TConn) -> Any:
        """Answers a request, in a thread."""
        # A connection on which nothing has come yet goes back to the poller at once; gunicorn's thread waits 5 seconds.
        wait = conn.wait_for_data
        conn.wait_for_data = lambda timeout: wait(0)
        self._deadlines[conn] = time.monotonic() + _REQUEST_SECONDS
        try:
            return super().handle(conn)
        finally:
            del self._deadlines[conn]

    def notify(self) -> None:
        """Tells the parent, about once a second, that this worker lives; ends the input of requests that take long."""
        super().notify()
        now = time.monotonic()
        for conn, deadline in list(self._deadlines.items()):
            if now > deadline:
                with suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RD)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Answers what is no request; says 400, not 501, to a transfer coding it does not know."""
        if isinstance(exc, UnsupportedTransferCoding):
            exc = InvalidHeader(str(exc), req=req)
        super().handle_error(req, client, addr, exc)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stops; does not wait for connections on which nothing was asked."""
        for conn in self.pending_conns:
            conn.timeout = 0.0
        super().handle_exit(sig, frame)
