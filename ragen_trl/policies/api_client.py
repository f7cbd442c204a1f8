"""Chat completions over HTTP from any OpenAI-compatible server: one answer, or an error that says what to do.

Failures that may pass (429, 5xx, timeouts, broken connections) are tried again with exponential back-off and jitter,
never sooner than the server's ``Retry-After``. Threads and not asyncio, because a rollout may be called from a
notebook, where an event loop is already running.
"""

import email.utils
import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from ragen_trl.errors import OptionError, UserError

_CONNECT_SECONDS = 10.0
_EXCERPT = 300  # characters of a server's text in a message
_SHORTEST_SECRET = 8  # a placeholder like "EMPTY" is no secret, and hiding its letters would damage the message
_AGAIN = (408, 409, 425, 429)
_REMEDIES = {  # of statuses that all requests would get
    401: "set OPENAI_API_KEY to a key that this server knows",
    402: "the account is out of credit: top it up and repeat the command",
    404: "check the base URL (most end in /v1) and the name of the model",
}
_OF_ONE = (
    "if the server does not know an option, leave it out or use its other name; if the conversation is too long, lower "
    "the number of turns; if the key does not allow this, use another key or model"
)


class ApiError(UserError, RuntimeError):
    """A server gave no usable answer to a request. The message quotes the server, never the key."""


class ApiAccessError(ApiError):
    """The server will not answer any request: wrong address, key or model, or no credit left."""


@dataclass(frozen=True)
class Answer:
    """One reply of a server.

    Attributes:
        text: What the model wrote; ``""`` if it wrote nothing or refused.
        cut: Whether the token limit ended it.
        prompt_tokens: Tokens that were sent, by the server's count; ``None`` if it does not say.
        completion_tokens: Tokens that were written, hidden thoughts included; ``None`` if the server does not say.
        body: The server's JSON, unchanged.
    """

    text: str
    cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    body: str


def read_answer(body: str) -> Answer:
    """The first choice of a server's JSON; `ApiError` if none can be read."""
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        text = choice["message"].get("content") or ""  # null if a model refuses or only thinks
        text = text.encode("utf-8", "replace").decode("utf-8")  # half characters could not be stored
        usage = content.get("usage") or {}
        prompt, written = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        return Answer(text, choice.get("finish_reason") == "length", prompt, written, body)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ApiError(f"not a chat completion: {type(error).__name__} {error}") from error


class Prices(NamedTuple):
    """Money per million tokens, in any currency: for tokens that are sent, and for tokens that are written."""

    prompt: float
    completion: float


@dataclass
class ApiCounts:
    """Totals of one client, from several threads. Tokens are counted as in the server's ``usage``.

    Attributes:
        requests: Requests that were sent, including repeated ones.
        retries: How many of them were repetitions.
        failures: Requests that were given up.
        answers: Answers that this process received.
        without_usage: How many of those do not give their tokens, so tokens and cost are too low.
        prompt_tokens: Tokens sent for the answers.
        completion_tokens: Tokens written in the answers.
        stored_answers: Answers read from the cache; they were paid for earlier, and add nothing to the tokens.
        prices: If given, costs are counted as well.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0
    answers: int = 0
    without_usage: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored_answers: int = 0
    prices: Prices | None = None
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: int) -> None:
        """Add to some of the totals."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def count(self, answer: Answer) -> None:
        """Count an answer of the server."""
        sent, written = answer.prompt_tokens, answer.completion_tokens
        unmetered = sent is None or written is None
        self.add(answers=1, without_usage=int(unmetered), prompt_tokens=sent or 0, completion_tokens=written or 0)

    def as_dict(self) -> dict[str, Any]:
        """The totals for JSON; with prices also the ``cost``."""
        counts = {name: value for name, value in vars(self).items() if name not in ("prices", "_lock")}
        if self.prices is not None:
            cost = self.prompt_tokens * self.prices.prompt + self.completion_tokens * self.prices.completion
            counts |= {"prices": self.prices._asdict(), "cost": cost / 1e6}
        return counts

    def in_words(self) -> str:
        """One line: ``12 requests (2 again, 1 given up), 9 answers with 900 + 90 tokens, cost 0.001``."""
        line = (
            f"{self.requests} requests ({self.retries} again, {self.failures} given up), {self.answers} answers with "
            f"{self.prompt_tokens} + {self.completion_tokens} tokens"
        )
        line += f" ({self.without_usage} without a count)" if self.without_usage else ""
        line += f", cost {self.as_dict()['cost']:.6g}" if self.prices else ""
        return line + (f"; {self.stored_answers} answers from the cache" if self.stored_answers else "")


@dataclass(frozen=True)
class _Setback:
    """A failed attempt that may be repeated: why it failed, and the seconds that the server asks to wait."""

    why: str
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
        if concurrency < 1 or min(retries, backoff) < 0 or min(timeout, max_wait) <= 0 or min(prices or (0, 0)) < 0:
            raise OptionError(
                f"concurrency is {concurrency} (at least 1), retries {retries} and backoff {backoff} (at least 0), "
                f"timeout {timeout} and max_wait {max_wait} (more than 0), prices {prices} (not negative); change what "
                "is out of its range"
            )
        self.url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL", ""))
        self.concurrency = concurrency
        self.counts = ApiCounts(prices=prices)
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        if not all("!" <= letter <= "~" for letter in self._key):  # httpx would quote it in its error
            raise OptionError("the API key has blanks or characters beyond ASCII in it; set OPENAI_API_KEY again")
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
            ApiError: If it refuses this request, its answer is not a chat completion, or all attempts fail.
        """
        stop = stop or threading.Event()
        if stop.is_set():
            raise ApiError(f"{self.url} was not asked, because another request has failed finally")
        attempts = 0
        while True:
            self.counts.add(requests=1, retries=int(attempts > 0))
            outcome = self._attempt(payload)
            attempts += 1
            if isinstance(outcome, Answer):
                return outcome
            grown = min(self._backoff * 2 ** (attempts - 1), self._max_wait)
            jitter = grown * self._random.uniform(0.5, 1.0)  # spreads threads that failed together
            wait = outcome.wait + 0.1 * jitter if outcome.wait > 0 else jitter
            too_long = outcome.wait > self._max_wait
            if attempts > self._retries or too_long or stop.wait(wait):
                asked = f", and it asks to wait {outcome.wait:g} s" if too_long else ""
                raise ApiError(
                    f"{self.url} gave no answer in {attempts} attempts, at last {outcome.why}{asked}; check whether "
                    "the server is up and what it allows, or lower the number of requests at a time"
                )

    def _attempt(self, payload: dict[str, Any]) -> Answer | _Setback:
        try:
            # JSON in ASCII, because a reply that ends inside a character may hold what UTF-8 cannot encode.
            content, headers = json.dumps(payload, allow_nan=False), {"Content-Type": "application/json"}
            response = self._http.post(self.url, content=content, headers=headers)
        except httpx.RequestError as error:
            return _Setback(f"{type(error).__name__} ({self._excerpt(str(error))})")
        status, failure = response.status_code, _error_in(response.text)
        words = f"HTTP {status}: {self._excerpt(response.text)}"
        if status == 200:
            if failure:  # some gateways report their server's failure so
                return _Setback(words)
            try:
                return read_answer(response.text)
            except ApiError as error:
                raise ApiError(
                    f"{self.url} answers something that is not a chat completion ({self._excerpt(response.text)}); "
                    "check its URL"
                ) from error
        if status == 429 and failure.get("code") == "insufficient_quota":
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES[402]}")
        if status in _AGAIN or status >= 500:
            return _Setback(words, _retry_after(response.headers.get("Retry-After", "")))
        if status in _REMEDIES:
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES[status]}")
        if status < 400:
            target = self._excerpt(response.headers.get("Location", ""))
            raise ApiAccessError(f"{self.url} answers HTTP {status}, moved to {target!r}; give that base URL")
        raise ApiError(f"{self.url} refuses this request ({words}); {_OF_ONE}")

    def _excerpt(self, text: str) -> str:
        """The beginning of a text in one line, without the key, which servers may quote."""
        if len(self._key) >= _SHORTEST_SECRET:
            text = text.replace(self._key, "***")
        line = " ".join(text.split())
        return line if len(line) <= _EXCERPT else line[:_EXCERPT] + "…"


def _error_in(body: str) -> dict[str, Any]:
    """The ``error`` object of a body without choices; empty if there is none."""
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(content, dict) or "choices" in content or not content.get("error"):
        return {}
    error = content["error"]
    return error if isinstance(error, dict) else {"message": str(error)}


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
        raise OptionError(
            f"the base URL is {str(url)!r}; set OPENAI_BASE_URL or pass one: 'https://api.openai.com/v1', or "
            "'http://localhost:8000/v1' for your own server"
        )
    return f"{str(url).rstrip('/')}/chat/completions"
