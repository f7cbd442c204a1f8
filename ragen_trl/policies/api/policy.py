"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training.

It reads and writes text, so its trajectories have no token ids. Each row keeps its conversation. A reply prefix cannot
be forced: only the first message shows the format. A thought that a server keeps apart is not in the reply, so such
models play with ``think=False``. There is no ``top_k``, and no token limit of a trajectory. The server tokenises the
messages, so what looks like a control token in them is broken (`control_texts`).
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen_trl.errors import OptionError
from ragen_trl.policies.api.answer import Answer, ApiAccessError, ApiError, read_answer
from ragen_trl.policies.api.cache import ApiCache
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.control_texts import broken
from ragen_trl.policies.api.counts import ApiCounts
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Policy, Reply, Request

if TYPE_CHECKING:
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.chat import Chat, Message

logger = logging.getLogger(__name__)

_OPTIONAL = ("seed", "temperature", "top_p")


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
        if not model:
            raise OptionError("the model has no name; give its name on the server")
        if sampling.top_k:
            raise OptionError(f"top_k is {sampling.top_k}, but chat completions have no top_k; use 0, or top_p")
        unknown = sorted(set(leave_out) - set(_OPTIONAL))
        if unknown:
            raise OptionError(f"{', '.join(unknown)} cannot be left out; only {', '.join(_OPTIONAL)} can")
        if token_limit not in ("max_tokens", "max_completion_tokens"):
            raise OptionError(f"token_limit is {token_limit!r}; use 'max_tokens' or 'max_completion_tokens'")
        self.chat: Chat | None = None
        self.max_context: int | None = None
        self.model = model
        self.sampling = sampling
        self.cache = cache
        self._client = ApiClient() if client is None else client
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

    @property
    def counts(self) -> ApiCounts:
        """Counts of requests and answers since the client was made."""
        return self._client.counts

    @property
    def endpoint(self) -> str:
        """Where requests go."""
        return self._client.url

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
        outcomes = self._ask_all([self._question(request) for request in requests])
        self._check_alive(outcomes)
        return [self._take(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]

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
        return {"endpoint": self._client.url, "seed": sampling_seed, "payload": payload}

    def _sent(self, message: "Message") -> "Message":
        content, found = broken(message["content"])
        if found and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a message holds %r, which a server may read as a control token: it is sent with a zero-width space in "
                "it, as are others like it",
                found[0],
            )
        return {**message, "content": content} if found else message

    def _ask_all(self, questions: Sequence[dict[str, Any]]) -> list[Answer | ApiError]:
        stop = threading.Event()
        with _finishing(ThreadPoolExecutor(self._client.concurrency), stop) as threads:
            futures = [threads.submit(self._ask, question, stop) for question in questions]
            return [_outcome(future) for future in futures]

    def _ask(self, question: dict[str, Any], stop: threading.Event) -> Answer:
        stored = None if self.cache is None else self.cache.get(question)
        if stored is not None:
            answer = read_answer(stored)
            self.counts.found(answer)
            return answer
        try:
            answer = self._client.complete(question["payload"], stop)
        except ApiAccessError:
            stop.set()  # the other requests would fail as well
            self.counts.failed()
            raise
        except ApiError:
            self.counts.failed()
            raise
        self.counts.answered(answer)
        return answer if self.cache is None else read_answer(self.cache.put(question, answer.body))

    def _check_alive(self, outcomes: Sequence[Answer | ApiError]) -> None:
        failures = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        for failure in failures:
            if isinstance(failure, ApiAccessError):
                raise failure
        if failures and self.counts.answers + self.counts.stored_answers == 0:
            raise failures[0]

    def _take(self, request: Request, outcome: Answer | ApiError) -> Reply:
        if isinstance(outcome, ApiError):
            return Reply("", error=f"{type(outcome).__name__}: {outcome}")
        self._conversations[request.row].append({"role": "assistant", "content": outcome.text})
        return Reply(outcome.text, cut=outcome.cut)


@contextmanager
def _finishing(threads: ThreadPoolExecutor, stop: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """End the threads: finish requests that were already sent and store their answers, but make no new attempts."""
    try:
        yield threads
    finally:
        stop.set()
        threads.shutdown(cancel_futures=True)


def _outcome(future: "Future[Answer]") -> Answer | ApiError:
    try:
        return future.result()
    except ApiError as error:
        return error
