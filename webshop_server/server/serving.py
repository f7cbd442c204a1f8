"""What serving from one process and serving from several have in common: the settings, and the address."""

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Flask

from webshop_server.server.metrics import Metrics
from webshop_server.server.sessions import SessionStore, Tokens

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS = 10.0
"""How long a server that stops waits for requests that have come."""
CONNECTIONS = 1000
"""Most open connections of a process."""

MakeApp = Callable[[SessionStore[Any] | None, Tokens | None, Metrics], Flask]
"""Makes the application; None and None keep sessions in this process."""


class ServeError(Exception):
    """The server cannot start; the message is one line for the person who started it."""


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
        ServeError: If the address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except (OSError, OverflowError) as error:
        raise ServeError(no_address(host, port, error)) from error
    return taken


def no_address(host: str, port: int, error: Exception) -> str:
    """The line that says why an address cannot be served, and what to do."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot serve at {host}:{port}: {reason}; choose another --port or --host"
