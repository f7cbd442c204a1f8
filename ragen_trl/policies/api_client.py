"""Chat completions over HTTP from any OpenAI-compatible server: one answer, or an error that says what to do.

Threads and not asyncio, because a rollout may be called from a notebook, where an event loop is already running.
"""

import json
import os
import random
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx

from ragen_trl.errors import OptionError, UserError

_LONGEST_WAIT = 60.0  # seconds between two attempts; a server that asks for more is not asked again
_EXCERPT = 300  # characters of a server's text in a message
_PASSING = (408, 409, 425, 429)  # statuses that may pass, as those from 500 on
_REMEDIES = {  # for statuses that every request would get
    401: "set OPENAI_API_KEY to a key that this server knows",
    402: "the account is out of credit: top it up and repeat the command",
    404: "check the base URL (most end in /v1) and the name of the model",
}


class ApiError(UserError, RuntimeError):
    """A server gave no usable answer to a request. The message quotes the server, never the key."""


class ApiAccessError(ApiError):
    """The server will not answer any request: wrong address, key or model, or no credit left."""


@dataclass(frozen=True)
class Answer:
    """One reply of a server. Tokens are by its own count, hidden thoughts included; 0 if it does not say."""

    text: str  # "" if the model wrote nothing or refused
    cut: bool  # whether the token limit ended it
    prompt_tokens: int
    completion_tokens: int
    body: str  # the server's JSON, unchanged


def read_answer(body: str) -> Answer:
    """The first choice of a server's JSON; `ApiError` if there is none."""
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        text = choice["message"].get("content") or ""  # null if a model refuses or only thinks
        text = text.encode("utf-8", "replace").decode("utf-8")  # half characters could not be stored
        usage = content.get("usage") or {}
        prompt, written = (usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens"))
        return Answer(text, choice.get("finish_reason") == "length", prompt, written, body)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ApiError(f"not a chat completion ({type(error).__name__} {error}); check the base URL") from error


@dataclass
class ApiCounts:
    """Totals of one client, from several threads. Tokens are counted as in the server's ``usage``."""

    requests: int = 0  # that were sent, repeated ones included
    retries: int = 0  # of them
    failures: int = 0  # requests that were given up
    answers: int = 0  # that this process received
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored_answers: int = 0  # read from the cache; they add nothing to the tokens
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: int) -> None:
        """Add to some of the totals."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def as_dict(self) -> dict[str, int]:
        """The totals for JSON."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def in_words(self) -> str:
        """One line: ``12 requests (2 again, 1 given up), 9 answers with 900 + 90 tokens``."""
        line = (
            f"{self.requests} requests ({self.retries} again, {self.failures} given up), {self.answers} answers with "
            f"{self.prompt_tokens} + {self.completion_tokens} tokens"
        )
        return line + (f"; {self.stored_answers} answers from the cache" if self.stored_answers else "")


class ApiClient:
    """A connection to a server, which repeats failed requests. Threads may share one.

    Failures that may pass (429, 5xx, timeouts, broken connections) are tried again with exponential back-off and
    jitter, never sooner than the server's ``Retry-After``.

    Args:
        base_url: For example ``"http://localhost:8000/v1"``; by default ``OPENAI_BASE_URL``.
        api_key: By default ``OPENAI_API_KEY``. Without a key, none is sent.
        concurrency: Number of requests at a time.
        retries: How often a request is repeated at most.
        timeout: Seconds that one attempt may wait for the server's next bytes.
        backoff: Seconds before the first repetition; doubled for every further one, up to 60.

    Attributes:
        url: Where requests go.
        counts: Counts of requests and answers.

    Raises:
        OptionError: If there is no base URL, or it holds a secret.
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
    ) -> None:
        self.url = _chat_url(base_url or os.environ.get("OPENAI_BASE_URL", ""))
        self.concurrency = concurrency
        self.counts = ApiCounts()
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        self._retries, self._backoff = retries, backoff
        self._random = random.Random()  # unseeded: processes must not wait equally long
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(timeout, connect=10.0, pool=None),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            # No proxy can reach the loopback interface of this machine, whatever the environment variables say.
            trust_env=httpx.URL(self.url).host not in ("localhost", "127.0.0.1", "::1"),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def complete(self, payload: dict[str, Any], stop: threading.Event | None = None) -> Answer:
        """Send a request's JSON body until there is an answer, or until ``stop`` is set.

        Raises:
            ApiAccessError: If the server will not answer any request.
            ApiError: If it refuses this request, or all attempts fail.
        """
        stop, why = stop or threading.Event(), "another request has failed finally"
        attempts = 0
        while attempts <= self._retries and not stop.is_set():
            self.counts.add(requests=1, retries=int(attempts > 0))
            outcome = self._attempt(payload)
            if isinstance(outcome, Answer):
                return outcome
            why, asked = outcome
            grown = min(self._backoff * 2**attempts, _LONGEST_WAIT)
            jitter = grown * self._random.uniform(0.5, 1.0)  # spreads threads that failed together
            attempts += 1
            if asked > _LONGEST_WAIT:
                why += f", and it asks to wait {asked:g} s"
                break
            if attempts <= self._retries:
                stop.wait(asked + 0.1 * jitter if asked else jitter)
        raise ApiError(
            f"{self.url} gave no answer in {attempts} attempts, at last {why}; check whether the server is up and what "
            "it allows, or lower the number of requests at a time"
        )

    def _attempt(self, payload: dict[str, Any]) -> Answer | tuple[str, float]:
        """The answer; or why there is none yet, with the seconds that the server asks to wait (0: any)."""
        try:
            # JSON in ASCII, because a page that ends inside a character may hold what UTF-8 cannot encode.
            content, headers = json.dumps(payload, allow_nan=False), {"Content-Type": "application/json"}
            response = self._http.post(self.url, content=content, headers=headers)
        except httpx.RequestError as error:
            return f"{type(error).__name__} ({self._excerpt(str(error))})", 0.0
        status, words = response.status_code, f"HTTP {response.status_code}: {self._excerpt(response.text)}"
        if status == 200:
            try:
                return read_answer(response.text)
            except ApiError as error:  # some gateways report a failure behind them so
                return f"{words} ({error})", 0.0
        if status == 429 and "insufficient_quota" in response.text:
            status = 402
        if status in _PASSING or status >= 500:
            asked = response.headers.get("Retry-After", "")
            return words, float(asked) if asked.isdecimal() else 0.0  # a date, which no server of models sends, is none
        if status in _REMEDIES:
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES[status]}")
        if status < 400:
            target = self._excerpt(response.headers.get("Location", ""))
            raise ApiAccessError(f"{self.url} has moved to {target!r} (HTTP {status}); give that base URL")
        raise ApiError(
            f"{self.url} refuses this request ({words}); leave out an option that it does not know (leave_out, "
            "token_limit), or make the conversation shorter"
        )

    def _excerpt(self, text: str) -> str:
        """The beginning of a text in one line, without the key, which servers may quote."""
        if len(self._key) >= 8:  # a placeholder like "EMPTY" is no secret
            text = text.replace(self._key, "***")
        line = " ".join(text.split())
        return line if len(line) <= _EXCERPT else line[:_EXCERPT] + "…"


def _chat_url(base_url: str) -> str:
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        url = httpx.URL("")
    # The address is stored and printed, so it must not hold a secret, and the message does not repeat it.
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise OptionError(
            "the base URL must be an address alone, without a password or a query; set OPENAI_BASE_URL or pass one: "
            "'https://api.openai.com/v1', or 'http://localhost:8000/v1' for your own server"
        )
    return f"{str(url).rstrip('/')}/chat/completions"
