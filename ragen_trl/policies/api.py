"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training.

It reads and writes text, so its trajectories have no token ids. A reply prefix cannot be forced: only the first message
shows the format. A thought that a server keeps apart is not in the reply, so such models play with ``think=False``.
There is no ``top_k``, and no token limit of a trajectory. Threads and not asyncio, because a rollout may be called from
a notebook, where an event loop is already running.
"""

import hashlib
import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from ragen_envs import END_ANSWER
from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.sqlite_file import opened

if TYPE_CHECKING:
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.chat import Message

_FIRST_WAIT = 1.0  # seconds before the first repetition; doubled for every further one
_LONGEST_WAIT = 60.0
_EXCERPT = 300  # characters of a server's text in a message
_PASSING = (200, 408, 409, 425, 429)  # may pass, as those from 500 on; some gateways report a failure with 200
BREAK = "\u200b"  # a zero-width space
_CONTROL = re.compile(
    r"<\|[^\s<>|]{1,64}\|?>|<[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>"  # ChatML, Llama 3, Phi; Gemma 4; DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|image|video|audio)>|<(?:start|end)_of_\w{1,64}>"  # Llama 2, Gemma, GLM
    r"|</?tool_(?:call|response|result)s?>|</?tools>"  # Qwen
    r"|<</?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,16}|THINK|IMG|gMASK)\]"  # Llama 2, Mistral, GLM
)
_COUNTED = ("requests", "failures", "answers", "prompt_tokens", "completion_tokens", "stored_answers")
_TABLE = "CREATE TABLE answers (request TEXT PRIMARY KEY, reply TEXT NOT NULL, cut INTEGER NOT NULL) WITHOUT ROWID"


class ApiError(UserError, RuntimeError):
    """A server gave no usable answer to a request. The message quotes the server, never the key."""


def read_answer(body: str) -> tuple[Reply, dict[str, int]] | None:
    """The first choice of a server's JSON, and tokens by its own count; ``None`` if it is not a chat completion."""
    try:
        content = json.loads(body)
        choice = content["choices"][0]
        text = choice["message"].get("content") or ""  # null if a model refuses or only thinks
        text = text.encode("utf-8", "replace").decode("utf-8")  # half characters could not be stored
        usage = content.get("usage") or {}
        tokens = {name: usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")}
        return Reply(text, cut=choice.get("finish_reason") == "length"), tokens
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


class ApiPolicy(Policy):
    """Asks a server for each reply, all rows side by side.

    Failures that may pass (429, 5xx, timeouts, broken connections) are tried again, with jitter and never sooner than
    the server's ``Retry-After``. A request that finally fails becomes a reply with ``error``, and the episode ends
    there, truncated. As long as no request was answered at all, `ApiError` is raised instead: the address, the model or
    an option is wrong.

    Args:
        model: The model's name on the server.
        sampling: How it samples. ``max_tokens`` is the limit of a reply, and ``top_k`` must be 0.
        base_url: For example ``"http://localhost:8000/v1"``; by default ``OPENAI_BASE_URL``.
        api_key: By default ``OPENAI_API_KEY``. Without a key, none is sent.
        cache: A SQLite file that keeps the answers, which threads and processes may share. A killed evaluation does not
            pay for any answer twice. It does not notice if a server changes the model of a name and address.
        system_prompt: Content of a system message, which may be empty; ``None`` sends none.
        leave_out: The fields among ``"seed"``, ``"temperature"`` and ``"top_p"`` that the server refuses.
        token_limit: The server's name for the limit of a reply: ``"max_tokens"``, or ``"max_completion_tokens"``, which
            OpenAI's reasoning models require and which includes their hidden thoughts.
        concurrency: Number of requests at a time.
        retries: How often a request is repeated at most.
        timeout: Seconds that one attempt may wait for the server's next bytes.

    Attributes:
        endpoint: The address that is asked.
        counts: ``requests`` that were sent, requests that were given up (``failures``), ``answers`` with
            ``prompt_tokens`` and ``completion_tokens`` by the server's ``usage`` (hidden thoughts included), and
            answers that were read from the cache (``stored_answers``).

    Raises:
        OptionError: If there is no base URL, or it holds a secret, or another option cannot be used.
    """

    def __init__(
        self,
        model: str,
        sampling: "Sampling",
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        cache: str | Path | None = None,
        system_prompt: str | None = None,
        leave_out: Sequence[str] = (),
        token_limit: str = "max_tokens",
        concurrency: int = 16,
        retries: int = 6,
        timeout: float = 120.0,
    ) -> None:
        if sampling.top_k:
            raise OptionError(f"top_k is {sampling.top_k}, but chat completions have no top_k; use 0")
        self.model, self.sampling = model, sampling
        self.endpoint = _chat_url(base_url or os.environ.get("OPENAI_BASE_URL", ""))
        self.counts = Counter(dict.fromkeys(_COUNTED, 0))
        self._counting = threading.Lock()
        self._leave_out, self._token_limit = frozenset(leave_out), token_limit
        texts = [] if system_prompt is None else [broken(system_prompt)]
        self._system: list[Message] = [{"role": "system", "content": text} for text in texts]
        self._seeds: list[int] = []
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        self._concurrency, self._retries = concurrency, retries
        self._random = random.Random()  # unseeded: processes must not wait equally long
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = httpx.Client(
            headers={"Content-Type": "application/json", **key},
            timeout=httpx.Timeout(timeout, connect=10.0, pool=None),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            # No proxy can reach the loopback interface of this machine, whatever the environment variables say.
            trust_env=httpx.URL(self.endpoint).host not in ("localhost", "127.0.0.1", "::1"),
        )
        self._cache = cache
        self._stored({})  # a file that cannot be used is said now

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._seeds = [int(seed) for seed in seeds]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`, with ``concurrency`` requests at a time.

        After Ctrl-C requests that were already sent are finished and their answers stored.

        Raises:
            ApiError: If a request fails before the server has answered any request.
            OptionError: If an environment has tools.
        """
        if any(tools_of(request.env) for request in requests):
            raise OptionError(
                "tool calls are not sent over an API, because a server reads and writes them by its own template; "
                "let the model play in text: env=lambda: AgentTurns(gymnasium.make(...))"
            )
        questions = [self._question(request) for request in requests]
        stop = threading.Event()
        with ThreadPoolExecutor(self._concurrency) as threads:
            try:
                replies = list(threads.map(self._ask, questions, [stop] * len(questions)))
            finally:
                stop.set()
        errors = [reply.error for reply in replies if reply.error]
        if errors and self.counts["answers"] + self.counts["stored_answers"] == 0:
            raise ApiError(errors[0])
        return replies

    def _question(self, request: Request) -> dict[str, Any]:
        """All that the answer depends on: the endpoint, the request's body, and the sampling seed, sent or not."""
        messages = list(self._system)
        for turn in request.turns:
            messages += [_message("user", turn.observation), _message("assistant", turn.reply)]
        messages.append(_message("user", request.observation))
        drawn = np.random.SeedSequence((self._seeds[request.row], len(request.turns) + 1)).generate_state(1)[0]
        sampling_seed = int(drawn >> 1)  # some servers keep it in a signed 32-bit number
        options = {"seed": sampling_seed, "temperature": self.sampling.temperature, "top_p": self.sampling.top_p}
        sent = {name: value for name, value in options.items() if name not in self._leave_out}
        limit = request.max_tokens(self.sampling.max_tokens)
        payload = {"model": self.model, "messages": messages, self._token_limit: limit, **sent}
        return {"endpoint": self.endpoint, "seed": sampling_seed, "payload": payload}

    def _ask(self, question: dict[str, Any], stop: threading.Event) -> Reply:
        """The answer of the cache or of the server, or why there is none."""
        reply = self._stored(question)
        if reply is not None:
            self._count(stored_answers=1)
        else:
            reply = self._answer(question["payload"], stop)
            if reply.error:
                return reply
            reply = self._stored(question, reply) or reply
        if self.sampling.stop_at_answer and END_ANSWER in reply.text:  # as a local model's; not every server can stop
            return Reply(reply.text.partition(END_ANSWER)[0] + END_ANSWER)
        return reply

    def _answer(self, payload: dict[str, Any], stop: threading.Event) -> Reply:
        """Send a request's JSON body until there is an answer, or until ``stop`` is set."""
        # JSON in ASCII, because a page that ends inside a character may hold what UTF-8 cannot encode.
        content, asked, why = json.dumps(payload, allow_nan=False), 0.0, "all requests were stopped"
        advice = "check whether the server is up and what it allows, or lower the number of requests at a time"
        for attempt in range(self._retries + 1):
            if attempt:
                jitter = min(_FIRST_WAIT * 2 ** (attempt - 1), _LONGEST_WAIT) * self._random.uniform(0.5, 1.0)
                stop.wait(min(asked, _LONGEST_WAIT) + jitter)  # spreads threads that failed together
            if stop.is_set():
                break
            self._count(requests=1)
            try:
                response = self._http.post(self.endpoint, content=content)
            except httpx.RequestError as error:
                why, asked = f"{type(error).__name__} ({self._excerpt(str(error))})", 0.0
                continue
            status, why = response.status_code, f"HTTP {response.status_code}: {self._excerpt(response.text)}"
            if status == 200 and (found := read_answer(response.text)) is not None:
                self._count(answers=1, **found[1])
                return found[0]
            if (status not in _PASSING and status < 500) or "insufficient_quota" in response.text:
                advice = "it refuses this request: check OPENAI_API_KEY, the base URL (most end in /v1), the model and "
                advice += "options that this server may not know (leave_out, token_limit)"
                break
            wait = response.headers.get("Retry-After", "")
            asked = float(wait) if wait.isdecimal() else 0.0  # a date, which no server of models sends, is none
        self._count(failures=1)
        return Reply("", error=f"{self.endpoint} gave no answer, at last {why}; {advice}")

    def _stored(self, question: dict[str, Any], new: Reply | None = None) -> Reply | None:
        """The answer in the cache, after ``new`` is put there; another process's, if that came first."""
        if self._cache is None:
            return None
        key = hashlib.sha256(json.dumps(question, sort_keys=True, allow_nan=False).encode()).hexdigest()
        with opened(self._cache, _TABLE, "a cache of answers") as database:
            if new is not None:
                database.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (key, new.text, new.cut))
            found = database.execute("SELECT reply, cut FROM answers WHERE request = ?", (key,)).fetchone()
        return None if found is None else Reply(found[0], cut=bool(found[1]))

    def _count(self, **amounts: int) -> None:
        with self._counting:
            self.counts.update(amounts)

    def _excerpt(self, text: str) -> str:
        """The beginning of a text in one line, without the key, which servers may quote."""
        if len(self._key) >= 8:  # a placeholder like "EMPTY" is no secret
            text = text.replace(self._key, "***")
        line = " ".join(text.split())
        return line if len(line) <= _EXCERPT else line[:_EXCERPT] + "…"


def _chat_url(base_url: str) -> str:
    url = httpx.URL(base_url.strip())
    # The address is stored and printed, so it must not hold a secret, and the message does not repeat it.
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise OptionError(
            "the base URL must be an address alone, without a password or a query; set OPENAI_BASE_URL or pass one: "
            "'https://api.openai.com/v1', or 'http://localhost:8000/v1' for your own server"
        )
    return f"{str(url).rstrip('/')}/chat/completions"


def _message(role: str, text: str) -> "Message":
    return {"role": role, "content": broken(text)}


def broken(text: str) -> str:
    """A message with a `BREAK` in what looks like a control token, after its first character.

    Servers like vLLM read ``<|im_end|>`` in a message as the end of the message, so a page could speak in the model's
    name. The client does not know the server's tokens; it knows how the common families' tokens look.
    """
    return _CONTROL.sub(lambda found: found[0][0] + BREAK + found[0][1:], text)
