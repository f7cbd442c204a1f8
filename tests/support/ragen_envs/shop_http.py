"""Servers for the client's tests: a real one in a thread of this process, and an application without a socket."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from flask import Flask, abort, request
from waitress.server import create_server

from ragen_envs.webshop import WebShop
from ragen_envs.webshop.client import ShopConnection
from webshop_server import create_app


@contextmanager
def httpd(port: int = 0) -> Iterator[str]:
    """A real server with the toy catalogue; it closes all connections when it stops."""
    connections: dict[Any, Any] = {}
    server = create_server(
        create_app("toy"), connections, host="127.0.0.1", port=port, threads=2, clear_untrusted_proxy_headers=True
    )
    # How long it sleeps between looks, and so takes to stop. Given above, waitress would make it a whole number.
    server.adj.asyncore_loop_timeout = 0.02
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.task_dispatcher.shutdown()
        for channel in list(connections.values()):
            channel.close()
        thread.join(timeout=10)


def without_api(catalog: str = "synthetic", **arguments: Any) -> Flask:
    """Our server with nothing but the original's pages."""
    app = create_app(catalog, **arguments)

    def refuse() -> None:
        if request.path.startswith("/api/"):
            abort(404)

    app.before_request(refuse)
    del app.error_handler_spec[None]  # refusals are Flask's own pages, as in the original
    return app


def connected(env: WebShop, app: Any) -> WebShop:
    """The environment, its address served by an application of this process."""
    transport = httpx.WSGITransport(app=app, raise_app_exceptions=False)
    env._connection = ShopConnection(
        "http://shop.test", lambda: httpx.Client(transport=transport, base_url="http://shop.test"), "start it", ()
    )
    return env
