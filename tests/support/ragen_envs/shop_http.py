"""A real server for the client's tests, in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waitress.server import create_server

from webshop_server import create_app


@contextmanager
def httpd(port: int = 0) -> Iterator[str]:
    """A real server with the toy catalogue; it closes all connections when it stops."""
    connections: dict[Any, Any] = {}
    server = create_server(
        create_app("toy"), connections, host="127.0.0.1", port=port, threads=2, clear_untrusted_proxy_headers=True
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.task_dispatcher.shutdown()
        for channel in list(connections.values()):
            channel.close()
        thread.join(timeout=10)
