"""Servers for the client's tests: applications without a socket."""

from typing import Any

import httpx

from ragen_envs.webshop import WebShop
from ragen_envs.webshop.remote import RemoteStore
from webshop_server import create_app

ADDRESS = "http://shop.test"


def original(catalog: str = "synthetic", **arguments: Any) -> Any:
    """Our server without what the original lacks: it ignores the query of a start page, so no page carries JSON."""
    app = create_app(catalog, **arguments)

    def bare(environ: dict[str, Any], start_response: Any) -> Any:
        return app(environ if environ["PATH_INFO"].count("/") > 1 else {**environ, "QUERY_STRING": ""}, start_response)

    return bare


class Faulty:
    """An application whose next requests fail.

    Attributes:
        faults: What happens to the next requests, one each: "refuse" (no connection), "lose" (carried out, and the
            answer is lost), "busy" (status 503), "" (nothing), the arguments of another answer, or an exception.
        requests: Method and path of each request.
    """

    def __init__(self, app: Any, *faults: Any) -> None:
        """Fails as told, and then no more."""
        self._inner = httpx.WSGITransport(app=app)
        self.faults = list(faults)
        self.requests: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request."""
        self.requests.append(f"{request.method} {request.url.path}")
        fault = self.faults.pop(0) if self.faults else ""
        if isinstance(fault, Exception):
            raise fault
        if fault == "refuse":
            raise httpx.ConnectError("refused", request=request)
        if fault == "busy":
            return httpx.Response(503)
        if isinstance(fault, dict):
            return httpx.Response(**fault)
        response = self._inner.handle_request(request)
        response.read()
        if fault == "lose":
            raise httpx.ReadError("cut", request=request)
        return response


def connected(env: WebShop, app: Any) -> WebShop:
    """The environment, its address served by an application of this process, or by a `Faulty` one."""
    env.store = RemoteStore(ADDRESS)
    faulty = httpx.MockTransport(app.answer) if isinstance(app, Faulty) else None
    made = httpx.Client(transport=faulty or httpx.WSGITransport(app, raise_app_exceptions=False), base_url=ADDRESS)
    env.store._client = lambda: made
    return env
