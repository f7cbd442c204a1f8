"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training.

It reads and writes text, so its trajectories have no token ids. A reply prefix cannot be forced: only the first message
shows the format. A thought that a server keeps apart is not in the reply, so such models play with ``think=False``.
There is no ``top_k``, and no token limit of a trajectory. Threads and not asyncio, because a rollout may be called from
a notebook, where an event loop is already running.
"""

import hashlib
import json
import logging
import os
import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.chat import Message

logger = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0  # seconds between two attempts; a server that asks for more is not asked again
_EXCERPT = 300  # characters of a server's text in a message
_PASSING = (408, 409, 425, 429)  # statuses that may pass, as those from 500 on
_REMEDIES = {  # for statuses that every request would get
    401: "set OPENAI_API_KEY to a key that this server knows",
    402: "the account is out of credit: top it up and repeat the command",
    404: "check the base URL (most end in /v1) and the name of the model",
}
BREAK = "\u200b"  # a zero-width space
_CONTROL = re.compile(
    r"<\|[^\s<>|]{1,64}\|?>|<[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>"  # ChatML, Llama 3, Phi; Gemma 4; DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|image|video|audio)>|<(?:start|end)_of_\w{1,64}>"  # Llama 2, Gemma, GLM
    r"|</?tool_(?:call|response|result)s?>|</?tools>"  # Qwen
    r"|<</?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,16}|THINK|IMG|gMASK)\]"  # Llama 2, Mistral, GLM
)
_OPTIONAL = ("seed", "temperature", "top_p")


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
    """Totals of one client, which several threads add to. Tokens are counted as in the server's ``usage``."""

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
    """A connection to a server, which threads may share.

    Failures that may pass (429, 5xx, timeouts, broken connections) are tried again, with jitter and never sooner than
    the server's ``Retry-After``.

    Args:
        base_url: For example ``"http://localhost:8000/v1"``; by default ``OPENAI_BASE_URL``.
        api_key: By default ``OPENAI_API_KEY``. Without a key, none is sent.
        concurrency: Number of requests at a time.
        retries: How often a request is repeated at most.
        timeout: Seconds that one attempt may wait for the server's next bytes.
        backoff: Seconds before the first repetition; doubled for every further one, up to 60.

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
        if status in _REMEDIES or status < 400:
            moved = f"it has moved to {self._excerpt(response.headers.get('Location', ''))!r}: give that base URL"
            raise ApiAccessError(f"{self.url} refuses ({words}); {_REMEDIES.get(status, moved)}")
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


class ApiCacheError(UserError, ValueError):
    """The file cannot be used as a cache of answers."""


class ApiCache(SqliteFile):
    """Answers of a server in a SQLite file, so a killed evaluation does not pay for any answer twice.

    Threads and processes may share it. Every answer is on disk before it is used, with its request, without the key.
    The cache does not notice if a server changes the model of a name and address. `ApiCacheError` if the file at
    ``path`` is something else or cannot be opened.
    """

    error = ApiCacheError
    purpose = "a cache of answers"
    application = 0x41504943  # "APIC"
    version = 1
    schema = (
        "CREATE TABLE answers (digest TEXT PRIMARY KEY, request TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID",
    )
    # If the disk cannot have a write-ahead log, the journal mode stays as it was. An answer is worth a flush.
    pragmas = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, threads=True)
        self._lock = threading.Lock()  # one connection for one thread at a time

    def get(self, request: dict[str, Any]) -> str | None:
        """The stored JSON for a request, which is all that the answer depends on; ``None`` if there is none."""
        found = self._run("SELECT body FROM answers WHERE digest = ?", _written(request)[0])
        return str(found[0][0]) if found else None

    def put(self, request: dict[str, Any], body: str) -> str:
        """Store an answer. Returns the stored one, which is another process's answer if that came first."""
        self._run("INSERT INTO answers VALUES (?, ?, ?) ON CONFLICT DO NOTHING", *_written(request), body)
        return self.get(request) or body

    def _run(self, statement: str, *values: str) -> list[Any]:
        with self._named_errors(), self._lock:
            return self._connection.execute(statement, values).fetchall()


def _written(request: dict[str, Any]) -> tuple[str, str]:
    """A request's digest and its text."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest(), text


class ApiPolicy(Policy):
    """Asks a server for each reply, all rows side by side.

    A request that finally fails becomes a reply with ``error``, and the episode ends there, truncated. As long as no
    request was answered at all, the failure is raised instead: the address, the model or an option is wrong.

    Args:
        model: The model's name on the server.
        sampling: How it samples. ``max_tokens`` is the limit of a reply, and ``top_k`` must be 0.
        client: The server; by default the one that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name.
        cache: Keeps the answers. Without one they are lost when the process ends.
        system_prompt: Content of a system message, which may be empty; ``None`` sends none.
        leave_out: The fields among ``"seed"``, ``"temperature"`` and ``"top_p"`` that the server refuses.
        token_limit: The server's name for the limit of a reply: ``"max_tokens"``, or ``"max_completion_tokens"``, which
            OpenAI's reasoning models require and which includes their hidden thoughts.

    Raises:
        OptionError: If an option cannot be used.

    Example:
        >>> from ragen_trl.policies.sampling import Sampling
        >>> with ApiPolicy("gpt", Sampling(max_tokens=100), ApiClient("http://localhost:8000/v1", "")) as policy:
        ...     print(policy.counts.in_words())
        0 requests (0 again, 0 given up), 0 answers with 0 + 0 tokens
    """

    def __init__(
        self,
        model: str,
        sampling: "Sampling",
        client: ApiClient | None = None,
        *,
        cache: ApiCache | None = None,
        system_prompt: str | None = None,
        leave_out: Sequence[str] = (),
        token_limit: str = "max_tokens",
    ) -> None:
        if sampling.top_k or not set(leave_out) <= set(_OPTIONAL):
            raise OptionError(
                f"top_k is {sampling.top_k} and leave_out {list(leave_out)}; chat completions have no top_k (use 0), "
                f"and only {', '.join(_OPTIONAL)} can be left out"
            )
        self.model, self.sampling, self.cache = model, sampling, cache
        self._client = ApiClient() if client is None else client
        self.endpoint, self.counts = self._client.url, self._client.counts
        self._leave_out, self._token_limit = frozenset(leave_out), token_limit
        texts = [] if system_prompt is None else [system_prompt]
        self._system: list[Message] = [{"role": "system", "content": text} for text in texts]
        self._has_warned = False
        self._seeds: list[int] = []
        self._conversations: dict[int, list[Message]] = {}

    def __enter__(self) -> "ApiPolicy":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the cache."""
        self._client.close()
        if self.cache is not None:
            self.cache.close()

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._seeds = [int(seed) for seed in seeds]
        self._conversations = {row: list(self._system) for row in range(len(seeds))}

    def end(self, rows: Sequence[int]) -> None:
        """As `Policy.end`."""
        for row in rows:
            del self._conversations[row]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`, with as many requests at a time as the client allows.

        Raises:
            ApiAccessError: If the server will not answer any request. As after Ctrl-C, requests that were already sent
                are finished and their answers stored.
            ApiError: If a request fails before the server has answered any request.
            OptionError: If an environment has tools.
        """
        for request in requests:
            if tools_of(request.env):
                raise OptionError(
                    "tool calls are not sent over an API, because a server reads and writes them by its own template; "
                    "let the model play in text: env=lambda: AgentTurns(gymnasium.make(...))"
                )
            self._conversations[request.row].append({"role": "user", "content": request.observation})
        questions = [self._question(request) for request in requests]
        stop = threading.Event()
        with ThreadPoolExecutor(self._client.concurrency) as threads:
            try:
                outcomes = list(threads.map(self._ask, questions, [stop] * len(questions)))
            finally:
                stop.set()
        failures = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        of_all = [failure for failure in failures if isinstance(failure, ApiAccessError)]
        if of_all or (failures and self.counts.answers + self.counts.stored_answers == 0):
            raise (of_all or failures)[0]
        replies = []
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, ApiError):
                replies.append(Reply("", error=f"{type(outcome).__name__}: {outcome}"))
                continue
            self._conversations[request.row].append({"role": "assistant", "content": outcome.text})
            replies.append(Reply(outcome.text, cut=outcome.cut))
        return replies

    def _question(self, request: Request) -> dict[str, Any]:
        """All that the answer depends on: the endpoint, the request's body, and the sampling seed, sent or not."""
        messages = [self._sent(message) for message in self._conversations[request.row]]
        turn = sum(message["role"] == "user" for message in messages)
        drawn = np.random.SeedSequence((self._seeds[request.row], turn)).generate_state(1)[0]
        sampling_seed = int(drawn >> 1)  # some servers keep it in a signed 32-bit number
        options = {"seed": sampling_seed, "temperature": self.sampling.temperature, "top_p": self.sampling.top_p}
        sent = {name: value for name, value in options.items() if name not in self._leave_out}
        limit = request.max_tokens(self.sampling.max_tokens)
        payload = {"model": self.model, "messages": messages, self._token_limit: limit, **sent}
        return {"endpoint": self.endpoint, "seed": sampling_seed, "payload": payload}

    def _sent(self, message: "Message") -> "Message":
        content, found = broken(message["content"])
        if found and not self._has_warned:
            self._has_warned = True
            logger.warning("a message holds %r, a control token of some servers: it is sent broken", found[0])
        return {**message, "content": content} if found else message

    def _ask(self, question: dict[str, Any], stop: threading.Event) -> Answer | ApiError:
        """The answer of the cache or of the server, or why there is none."""
        stored = None if self.cache is None else self.cache.get(question)
        if stored is not None:
            self.counts.add(stored_answers=1)
            return read_answer(stored)
        try:
            answer = self._client.complete(question["payload"], stop)
        except ApiError as error:
            if isinstance(error, ApiAccessError):
                stop.set()  # the other requests would fail as well
            self.counts.add(failures=1)
            return error
        self.counts.add(answers=1, prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        return answer if self.cache is None else read_answer(self.cache.put(question, answer.body))


def broken(text: str) -> tuple[str, list[str]]:
    """A message with a `BREAK` in what looks like a control token, after its first character, and what was broken.

    Servers like vLLM read ``<|im_end|>`` in a message as the end of the message, so a page could speak in the model's
    name. The client does not know the server's tokens; it knows how the common families' tokens look.
    """
    return _CONTROL.sub(lambda found: found[0][0] + BREAK + found[0][1:], text), _CONTROL.findall(text)
