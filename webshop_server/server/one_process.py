"""One process, served by waitress.

Waitress takes bodies somewhat longer than the application does, so that the application refuses them, in its own form.
Those over 1 MiB waitress refuses itself, with 413 and plain text.
"""

import logging
import signal
import socket
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable
from types import FrameType
from typing import Any

import waitress  # type: ignore[import-untyped]
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.parser import HTTPRequestParser  # type: ignore[import-untyped]
from waitress.utilities import BadRequest, Error, ServerNotImplemented  # type: ignore[import-untyped]

from webshop_server.server.metrics import Metrics
from webshop_server.server.serving import (
    CONNECTIONS,
    STOP_SECONDS,
    STOP_SIGNALS,
    MakeApp,
    ServeError,
    Serving,
    no_address,
)
from webshop_server.server.validation import MAX_BODY

_TICK = 0.05  # seconds
_IDLE_TICKS = 3  # without a request before a stopping server ends, so that answers are sent
_MAX_REQUEST = 16 * MAX_BODY


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


def serve_alone(serving: Serving, make_app: MakeApp, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serves in this process until a signal comes, then answers what has come and returns.

    Args:
        serving: How.
        make_app: Makes the application.
        listener: A bound socket.
        ready: Called once requests are answered.

    Raises:
        ServeError: If the address is taken.
        Exception: What `make_app` raises.
    """
    metrics = Metrics()
    app = make_app(None, None, metrics)
    try:
        server = waitress.create_server(
            app,
            sockets=[listener],
            threads=serving.threads,
            connection_limit=CONNECTIONS,
            max_request_body_size=_MAX_REQUEST,
            asyncore_use_poll=True,
            ident="webshop",
        )
    except OSError as error:
        raise ServeError(no_address(serving.host, serving.port, error)) from error
    server.channel_class = _Channel

    def stop(number: int, frame: FrameType | None) -> None:
        if metrics.stopping:
            raise SystemExit(0)  # waitress takes it as the end of its loop
        metrics.stopping = True
        threading.Thread(target=_end_when_idle, args=(metrics, server), daemon=True).start()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        ready()
        server.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.close()


def _end_when_idle(metrics: Metrics, server: Any) -> None:
    """Waits until no request is under way, then interrupts the main thread, and wakes it where it waits for bytes.

    A client that asks again at once may still send a request after the last look. Its connection is closed without an
    answer, which HTTP allows, so waitress need not warn of it.
    """
    idle, deadline = 0, time.monotonic() + STOP_SECONDS
    while idle < _IDLE_TICKS and time.monotonic() < deadline:
        time.sleep(_TICK)
        idle = 0 if metrics.in_flight or server.task_dispatcher.queue else idle + 1
    if idle == _IDLE_TICKS:
        logging.getLogger("waitress").setLevel(logging.ERROR)
    interrupt_main()
    server.pull_trigger()
