"""Listening on a socket in this process: taking an address, and answering until a signal comes.

Waitress does the work. It is told to take bodies somewhat longer than the application does, so that the application
refuses them, in its own form; those over 1 MiB waitress refuses itself, with 413 and plain text.
"""

import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import waitress  # type: ignore[import-untyped]
from flask import Flask
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.parser import HTTPRequestParser  # type: ignore[import-untyped]
from waitress.utilities import BadRequest, Error, ServerNotImplemented  # type: ignore[import-untyped]

from webshop_server.server.metrics import Metrics
from webshop_server.server.validation import MAX_BODY

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TICK = 0.05
_IDLE_TICKS = 3  # without a request before a stopping server leaves, so that answers get out
_STOP_SECONDS = 10.0
_CONNECTIONS = 1000
_MAX_REQUEST = 16 * MAX_BODY


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


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Waitress's reader of requests; to a transfer coding it does not know it says 400, not 501."""

    error: Error | None

    def received(self, data: bytes) -> int:
        """Reads some bytes; returns how many it took."""
        taken: int = super().received(data)
        if isinstance(self.error, ServerNotImplemented):
            self.error = BadRequest(self.error.body)
        return taken


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection."""

    parser_class = _Parser


def listen(app: Flask, listener: socket.socket, serving: Serving, metrics: Metrics, ready: Callable[[], None]) -> None:
    """Serves in this process until a signal comes, then answers what has come and returns.

    Args:
        app: What answers.
        listener: A bound socket.
        serving: How.
        metrics: Told when the server is stopping, and asked what is under way.
        ready: Called once requests are answered.

    Raises:
        ServeError: If the address is taken.
    """
    try:
        server = waitress.create_server(
            app,
            sockets=[listener],
            threads=serving.threads,
            connection_limit=_CONNECTIONS,
            max_request_body_size=_MAX_REQUEST,
            asyncore_use_poll=True,
            ident="webshop",
        )
    except OSError as error:
        raise ServeError(_no_address(serving.host, serving.port, error)) from error
    server.channel_class = _Channel
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

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, tick)
    try:
        ready()
        server.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.close()
