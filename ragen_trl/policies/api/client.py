"""Chat completions over HTTP from any OpenAI-compatible server: one answer, or a named error that says what to do.

Failures that may pass (429, 5xx, timeouts, broken connections) are tried again with exponential back-off and jitter,
never sooner than the server's ``Retry-After``. Of others `ApiAccessError` concerns all requests, every other error a
single one, because one bad conversation must not end an evaluation. Threads and not asyncio, because a rollout may be
called from a notebook, where an event loop is already running.
"""

import email.utils
import json
import os
import random
import threading
import time
from typing import Any, NamedTuple

import httpx

from ragen_trl.errors import OptionError
from ragen_trl.policies.api.answer import (
    Answer,
    ApiAccessError,
    ApiAnswerError,
    ApiRefusedError,
    ApiUnavailableError,
    error_in,
    read_answer,
)
from ragen_trl.policies.api.counts import ApiCounts, Prices

_CONNECT_SECONDS = 10.0
_EXCERPT = 300  # characters of a server's text in a message
_SHORTEST_SECRET = 8  # a placeholder like "EMPTY" is no secret, and hiding its letters would damage the message
_JSON = {"Content-Type": "application/json"}
_AGAIN = (408, 409, 425, 429)
_REMEDIES = {
    401: "set OPENAI_API_KEY to a key that this server knows",
    402: "the account is out of credit: top it up and repeat the command",
    404: "check the base URL (most end in /v1) and the name of the model",
}


class _Setback(NamedTuple):
    """A failed attempt that may be repeated: why it failed, and the seconds that the server asks to wait."""

    why: str
    status: int | None = None
    wait: float = 0.0


class ApiClient:
    """A connection to a server, which repeats failed requests. Threads may share one.

    Args:
        base_url: For example ``"http://localhost:8000/v1"``; by default ``OPENAI_BASE_URL``.
        api_key: By default ``OPENAI_API_KEY``. Without a key, none is sent.
        concurrency: Number of requests at a time.
        retries: How often a request is repeated at most.
        timeout: Seconds that one attempt may wait for the server's next bytes.
        backoff: Seconds before the first repetition; doubled for every further one, up to ``max_wait``.
        max_wait: Longest wait in seconds. A server that asks for more (``Retry-After``) is not asked again.
        prices: Money per million tokens, to count costs.

    Attributes:
        url: Where requests go.
        counts: Counts of requests and answers.

    Raises:
        OptionError: If there is no base URL, or a value cannot be used.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        concurrency: int = 16,
        retries: int = 6,
        timeout: float = 120.0,
        backoff: float = 1.0,
        max_wait: float = 60.0,
        prices: Prices | None = None,
    ) -> None:
        limits = {"concurrency": (concurrency, 1), "retries": (retries, 0), "backoff": (backoff, 0)}
        for name, (value, least) in limits.items():
            if value < least:
                raise OptionError(f"{name} is {value}; it must be at least {least}")
        if timeout <= 0 or max_wait <= 0:
            raise OptionError(f"timeout is {timeout} and max_wait {max_wait}; both must be more than 0 seconds")
        if prices is not None and min(prices) < 0:
            raise OptionError(f"prices are {tuple(prices)}; they cannot be negative")
        self.url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL", ""))
        self.concurrency = concurrency
        self.counts = ApiCounts(prices)
        self._key = _checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
        self._retries, self._backoff, self._max_wait = retries, backoff, max_wait
        self._random = random.Random()  # unseeded: processes must not wait equally long
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            # No proxy can reach the loopback interface of this machine, whatever the environment variables say.
            trust_env=httpx.URL(self.url).host not in ("localhost", "127.0.0.1", "::1"),
        )

    def __enter__(self) -> "ApiClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def complete(self, payload: dict[str, Any], stop: threading.Event | None = None) -> Answer:
        """Send a request's JSON body until there is an answer, or until ``stop`` is set.

        Raises:
            ApiAccessError: If the server will not answer any request.
            ApiRefusedError: If the server refuses this request.
            ApiAnswerError: If the answer is not a chat completion.
            ApiUnavailableError: If all attempts fail.
        """
        stop = stop or threading.Event()
        attempts = 0
        if stop.is_set():
            raise ApiUnavailableError(f"{self.url} was not asked, because another request has failed finally")
        while True:
            self.counts.sent(again=attempts > 0)
            outcome = self._attempt(payload)
            attempts += 1
            if isinstance(outcome, Answer):
                return outcome
            wait = self._wait(attempts, outcome.wait)
            too_long = outcome.wait > self._max_wait
            if attempts > self._retries or too_long or stop.wait(wait):
                asked = f", and it asks to wait {outcome.wait:g} s" if too_long else ""
                raise ApiUnavailableError(
                    f"{self.url} gave no answer in {attempts} attempts, at last {outcome.why}{asked}; check whether "
                    "the server is up and what it allows, or lower the number of requests at a time",
                    outcome.status,
                )

    def _wait(self, attempts: int, asked: float) -> float:
        """Seconds until the next attempt, never less than ``asked``. Jitter spreads threads that failed together."""
        grown = min(self._backoff * 2 ** (attempts - 1), self._max_wait)
        jitter = self._random.uniform(0.5, 1.0)
        return asked + 0.1 * grown * jitter if asked > 0 else grown * jitter

    def _attempt(self, payload: dict[str, Any]) -> Answer | _Setback:
        try:
            # JSON in ASCII, because a reply that ends inside a character may hold what UTF-8 cannot encode.
            response = self._http.post(self.url, content=json.dumps(payload, allow_nan=False), headers=_JSON)
        except httpx.RequestError as error:
            return _Setback(f"{type(error).__name__} ({self._excerpt(str(error))})")
        status = response.status_code
        if status == 200:
            return self._read(response.text)
        words = f"HTTP {status}: {self._excerpt(response.text)}"
        if status == 429 and error_in(response.text).get("code") == "insufficient_quota":
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES[402]}", status)
        if status in _AGAIN or status >= 500:
            return _Setback(words, status, _retry_after(response.headers.get("Retry-After", "")))
        if status in _REMEDIES:
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES[status]}", status)
        if status < 400:
            target = self._excerpt(response.headers.get("Location", ""))
            raise ApiAccessError(f"{self.url} answers HTTP {status}, moved to {target!r}; give that base URL", status)
        remedy = (
            "the key does not allow this: use another key or model"
            if status == 403
            else "if the server does not know an option, leave it out or use its other name; if the conversation is "
            "too long, lower the number of turns"
        )
        raise ApiRefusedError(f"{self.url} refuses this request ({words}); {remedy}", status)

    def _read(self, body: str) -> Answer | _Setback:
        """The answer in a body. Some gateways report their server's failure with status 200."""
        failure = error_in(body)
        if failure:
            return _Setback(f"HTTP 200 with an error: {self._excerpt(json.dumps(failure))}", 200)
        try:
            return read_answer(body)
        except ApiAnswerError as error:
            raise ApiAnswerError(
                f"{self.url} answers something that is not a chat completion ({self._excerpt(body)}); check its URL",
                200,
            ) from error

    def _excerpt(self, text: str) -> str:
        """The beginning of a text in one line, without the key, which servers may quote."""
        if len(self._key) >= _SHORTEST_SECRET:
            text = text.replace(self._key, "***")
        line = " ".join(text.split())
        return line if len(line) <= _EXCERPT else line[:_EXCERPT] + "…"


def _retry_after(header: str) -> float:
    """Seconds in a ``Retry-After`` header (a number or a date); 0 if it cannot be read."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return 0.0


def _checked_url(base_url: str) -> str:
    if not base_url:
        raise OptionError(
            "there is no base URL; set OPENAI_BASE_URL or pass one: 'https://api.openai.com/v1', or "
            "'http://localhost:8000/v1' for your own server"
        )
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL as error:
        raise OptionError(f"the base URL is not a URL ({error}); write 'http://localhost:8000/v1'") from None
    # The address is stored and printed, so it must not hold a secret. So the message does not repeat it either.
    if url.userinfo or url.query or url.fragment:
        raise OptionError(
            f"the base URL for {url.host!r} has a password, a query or a fragment; write only the address, and put the "
            "key into OPENAI_API_KEY"
        )
    if url.scheme not in ("http", "https") or not url.host:
        raise OptionError(f"the base URL {str(url)!r} is not an http address; write 'http://localhost:8000/v1'")
    return f"{str(url).rstrip('/')}/chat/completions"


def _checked_key(key: str) -> str:
    """The key without blanks around it. httpx would quote a key that cannot be a header in its error."""
    key = key.strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise OptionError("the API key has blanks or characters beyond ASCII in it; set OPENAI_API_KEY again")
    return key
