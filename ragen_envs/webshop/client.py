"""HTTP to a store: requests, which errors are failures of the connection, and when to try again.

A request that fails is tried again after growing waits; one that the store refuses (4xx) is not. `session` decides
whether to repeat only a request or a whole session.
"""

import functools
import ipaddress
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import httpx

from ragen_envs.errors import EnvError

WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each new attempt: long enough to restart a server of a few thousand products."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
IDLE_SECONDS = 60.0  # a connection is kept while a model generates; the server closes it after two minutes

_HEADERS = {"Content-Type": "application/json"}
_NOT_NOW = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}

Result = TypeVar("Result")


class ShopServerError(EnvError, RuntimeError):
    """The store does not answer, or its answer is wrong; the message says what to do."""


class ShopRequestError(ShopServerError):
    """The store refused a request.

    Attributes:
        status: The HTTP status.
        code: The store's name for the error, or "".
    """

    def __init__(self, message: str, status: int, code: str) -> None:
        """Keeps message, status and code."""
        super().__init__(message)
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[type["ShopRequestError"], tuple[str, int, str]]:
        """Pickles with status and code: vector environments send errors from process to process."""
        return type(self), (str(self), self.status, self.code)


class NoJsonError(ShopServerError):
    """The answer is no JSON object; perhaps the server has pages only."""


class NoAnswerError(Exception):
    """One attempt got no answer. `ShopConnection.patiently` tries again or raises a `ShopServerError`."""


class ShopConnection:
    """HTTP to one store. It opens at its first use, and again after a fork; pickles and copies are not open.

    Args:
        address: The store's URL, for messages.
        connect: Makes the `httpx.Client`; it must be picklable.
        remedy: What to do if there is no answer.
        waits: Seconds before the second attempt, the third, and so on.
        sleep: Waits so many seconds.

    Attributes:
        has_only_pages: The server was found to have pages and no JSON API; see `classic`.
        goals: Number of goals of such a server, once this connection asked; `classic` counts once in a process.
    """

    def __init__(
        self,
        address: str,
        connect: Callable[[], httpx.Client],
        remedy: str,
        waits: Sequence[float] = WAITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Opens nothing yet."""
        self.address = address
        self._connect = connect
        self._remedy = remedy
        self._waits = tuple(waits)
        self._sleep = sleep
        self.has_only_pages = False
        self.goals: int | None = None
        self._opened: tuple[int, httpx.Client, weakref.finalize] | None = None  # process, client, its closing

    def __getstate__(self) -> dict[str, Any]:
        """Without the open connection."""
        return {**self.__dict__, "_opened": None}

    def _client(self) -> httpx.Client:
        process = os.getpid()
        if self._opened is None or self._opened[0] != process:  # the parent's socket is not ours to write to
            client = self._connect()
            # Copies of environments are often dropped without `close`; their connection is closed then.
            self._opened = process, client, weakref.finalize(self, _close, process, client)
        return self._opened[1]

    def close(self) -> None:
        """Closes the connection; the next request opens a new one."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[2]()

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request once.

        Args:
            method: "GET", "POST" or "DELETE".
            path: From the root, such as "/api/store".
            body: Sent as JSON.

        Returns:
            The body of the answer; empty if there is none.

        Raises:
            NoAnswerError: If there is no answer, or the store cannot answer now (502, 503, 504).
            ShopRequestError: If the store refuses the request.
            ShopServerError: If the answer is not JSON.
        """
        content = None if body is None else json.dumps(body).encode()
        response = self._answered(lambda client: client.request(method, path, content=content, headers=_HEADERS))
        if response.status_code == HTTPStatus.NO_CONTENT:
            return {}
        try:
            read = response.json()
        except ValueError:
            read = None
        if not response.is_success:
            refusal = read if isinstance(read, dict) else {}
            said = refusal.get("message") or response.text[:200]
            status, code = response.status_code, str(refusal.get("error", ""))
            raise ShopRequestError(f"{method} {self.address}{path}: status {status}: {said}", status, code)
        if not isinstance(read, dict):
            raise NoJsonError(f"{method} {self.address}{path} returned no JSON object; is it a webshop-server?")
        return read

    def page(
        self, method: str, address: str, form: Mapping[str, str] | None = None, near: str = ""
    ) -> tuple[str, str]:
        """Asks for a page once, and follows where the server sends on.

        Args:
            method: "GET" or "POST".
            address: From the root, or as a link on a page has it.
            form: Fields of a form.
            near: Address of the page that has the link.

        Returns:
            The page's source, and its address.

        Raises:
            NoAnswerError: If there is no answer, or the server cannot answer now.
            ShopRequestError: If it refuses, or the link leads to another server.
        """
        url = httpx.URL(near).join(address) if near else address
        response = self._answered(lambda client: client.request(method, url, data=form, follow_redirects=True))
        status, place = response.status_code, f"{method} {self.address}{address[:200]}"
        if near and response.url.netloc != httpx.URL(near).netloc:
            raise ShopRequestError(f"{place} leads to another server, {response.url.host}", status, "another_server")
        if not response.is_success:
            raise ShopRequestError(f"{place}: status {status}", status, "")
        return response.text, str(response.url)

    def _answered(self, ask: Callable[[httpx.Client], httpx.Response]) -> httpx.Response:
        """The answer to a request; `NoAnswerError` if there is none, or the store cannot answer now."""
        try:
            response = ask(self._client())
        except httpx.TransportError as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from error
        if response.status_code in _NOT_NOW:
            raise NoAnswerError(f"status {response.status_code}")
        return response

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Calls `attempt` until there is an answer, with growing waits.

        Args:
            attempt: Raises `NoAnswerError` if there is no answer.

        Returns:
            What `attempt` returned.

        Raises:
            ShopServerError: If the last attempt fails too; names the address and says what to do.
        """
        for wait in (*self._waits, None):
            try:
                return attempt()
            except NoAnswerError as error:
                if wait is None:
                    tries = f"{len(self._waits) + 1} attempts in {sum(self._waits):g} s"
                    raise ShopServerError(
                        f"the store at {self.address} does not answer ({error}; {tries}); {self._remedy}"
                    ) from error
                self._sleep(wait)
        raise AssertionError("the last wait is None")


def _close(process: int, client: httpx.Client) -> None:
    if process == os.getpid():
        client.close()


def server_connection(base_url: str) -> ShopConnection:
    """A connection to a server; it is not open yet.

    Args:
        base_url: Such as "http://127.0.0.1:3000".

    Raises:
        ValueError: If it is not a URL.
    """
    url = base_url.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", url):
        raise ValueError(f"base_url={base_url!r} is not a URL; write 'http://127.0.0.1:3000'")
    remedy = "start `webshop-server` there, or leave base_url out to run the store in this process"
    if not _is_loopback(url):
        remedy += "; HTTP_PROXY, HTTPS_PROXY and ALL_PROXY send requests elsewhere, unless NO_PROXY has the host"
    return ShopConnection(url, functools.partial(_connect, url), remedy)


def _connect(url: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS)
    # A proxy cannot reach the loopback of this machine, so that the environment variables for proxies are ignored.
    return httpx.Client(base_url=url, timeout=TIMEOUT, limits=limits, trust_env=not _is_loopback(url))


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
