"""Serving the application until a signal comes: from one process, or from several that share a socket and the sessions.

With one worker everything is in this process, and waitress serves it (`one_process.py`). With several, gunicorn forks
them, replaces one that dies and hands out the connections (`several_processes.py`). Several workers need a system with
fork. This module has what both share: the address, and the decision between them.
"""

import signal
import socket
import sys
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


def serve(serving: Serving, make_app: MakeApp, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT comes, and answers what has come before it returns.

    Args:
        serving: How.
        make_app: Makes the application. It is called once, in this process.
        ready: Told the address once requests are answered.

    Raises:
        ServeError: If the address is taken, or several workers are asked for where there is no fork.
        Exception: What `make_app` raises.
    """
    listener = bind(serving.host, serving.port)
    with listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if serving.workers == 1:
            from webshop_server.server.one_process import serve_alone

            serve_alone(serving, make_app, listener, lambda: ready(address))
        elif sys.platform == "win32":
            raise ServeError("several workers need a system with fork; use --workers 1")
        else:
            from webshop_server.server.several_processes import serve_with_workers  # gunicorn needs fork to load

            serve_with_workers(serving, make_app, listener, lambda: ready(address))


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
