"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training.

It reads and writes text, so its trajectories have no token ids. Each row keeps its conversation. A reply prefix cannot
be forced: only the first message shows the format. A thought that a server keeps apart is not in the reply, so such
models play with ``think=False``. There is no ``top_k``, and no token limit of a trajectory.
"""

import hashlib
import json
import logging
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen_trl.errors import OptionError, UserError
from ragen_trl.policies.api_client import Answer, ApiAccessError, ApiClient, ApiError, read_answer
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.chat import Chat, Message

logger = logging.getLogger(__name__)

BREAK = "\u200b"
"""A zero-width space, put after the first character of what a server may read as a control token."""
_CONTROL = re.compile(
    r"<\|[^\s<>|]{1,64}\|?>|<[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>"  # ChatML, Llama 3, Phi; Gemma 4; DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|image|video|audio)>|<(?:start|end)_of_\w{1,64}>"  # Llama 2, Gemma, GLM
    r"|</?tool_(?:call|response|result)s?>|</?tools>"  # Qwen
    r"|<</?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,16}|THINK|IMG|gMASK)\]"  # Llama 2, Mistral, GLM
)
_OPTIONAL = ("seed", "temperature", "top_p")


def broken(text: str) -> tuple[str, list[str]]:
    """The text of a message with what looks like a control token broken, and what was broken in it.

    Servers like vLLM read ``<|im_end|>`` in a message as the end of the message, so a page could speak in the model's
    name. The client does not know the server's tokens; it knows how the common families' tokens look.
    """
    return _CONTROL.sub(lambda found: found[0][0] + BREAK + found[0][1:], text), _CONTROL.findall(text)


class ApiCacheError(UserError, ValueError):
    """The file cannot be used as a cache of answers."""


class ApiCache(SqliteFile):
    """Answers of a server on disk, so a killed evaluation does not pay for any answer twice.

    One SQLite file with a write-ahead log, which threads and processes may share. Every answer is on disk before it is
    used, with its request, without the key. What failed is asked again. The cache does not notice if a server changes
    the model of a name and address.

    Args:
        path: The file. It and its folder are made if they do not exist.

    Raises:
        ApiCacheError: If the file is not SQLite, belongs to something else, has another version, or cannot be opened.
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
        found = self._run("SELECT body FROM answers WHERE digest = ?", _digest(_written(request)))
        return str(found[0][0]) if found else None

    def put(self, request: dict[str, Any], body: str) -> str:
        """Store an answer. Returns the stored one, which is another process's answer if that came first."""
        text = _written(request)
        self._run("INSERT INTO answers VALUES (?, ?, ?) ON CONFLICT DO NOTHING", _digest(text), text, body)
        return self.get(request) or body

    def _run(self, statement: str, *values: str) -> list[Any]:
        with self._named_errors(), self._lock:
            return self._connection.execute(statement, values).fetchall()


def _written(request: dict[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class ApiPolicy(Policy):
    """Asks a server for each reply, all rows side by side.

    A request that finally fails becomes a reply with ``error``, and the episode ends there, truncated. As long as no
    request was answered at all, the failure is raised instead, because then the address, the model or an option is
    wrong.

    Args:
        model: The model's name on the server.
        sampling: How it samples. ``max_tokens`` is the limit of a reply, and ``top_k`` must be 0.
        client: The server; by default the one that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name.
        cache: Keeps the answers. Without one they are lost when the process ends.
        system_prompt: Content of a system message, which may be empty; ``None`` sends none.
        leave_out: The fields among ``"seed"``, ``"temperature"`` and ``"top_p"`` that the server refuses.
        token_limit: The server's name for the limit of a reply: ``"max_tokens"``, or ``"max_completion_tokens"``, which
            OpenAI's reasoning models require and which includes their hidden thoughts.

    Attributes:
        endpoint: Where requests go.
        counts: Counts of requests and answers since the client was made.

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
        self.chat: Chat | None = None
        self.max_context: int | None = None
        self.model = model
        self.sampling = sampling
        self.cache = cache
        self._client = ApiClient() if client is None else client
        self.endpoint, self.counts = self._client.url, self._client.counts
        self._leave_out, self._token_limit = frozenset(leave_out), token_limit
        self._system: list[Message] = []
        if system_prompt is not None:
            self._system = [{"role": "system", "content": system_prompt}]
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
        """Start empty conversations, one per sampling seed."""
        self._seeds = [int(seed) for seed in seeds]
        self._conversations = {row: list(self._system) for row in range(len(seeds))}

    def end(self, rows: Sequence[int]) -> None:
        """Forget finished conversations."""
        for row in rows:
            del self._conversations[row]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Ask for all replies, with as many requests at a time as the client allows.

        Raises:
            ApiAccessError: If the server will not answer any request. As after Ctrl-C, requests that were already sent
                are finished and their answers stored.
            ApiError: If a request fails before the server has answered any request.
            ApiCacheError: If an answer cannot be stored.
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
