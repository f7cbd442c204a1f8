"""Counts of requests, answers, tokens and costs, added up from several threads."""

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragen_trl.policies.api.answer import Answer


class Prices(NamedTuple):
    """Money per million tokens, in any currency: for tokens that are sent, and for tokens that are written."""

    prompt: float
    completion: float


@dataclass
class ApiCounts:
    """Totals of one client. Tokens are counted as in the server's ``usage``.

    Attributes:
        prices: If given, costs are counted as well.
        requests: Requests that were sent, including repeated ones.
        retries: How many of them were repetitions.
        failures: Requests that were given up.
        answers: Answers that this process received.
        without_usage: How many of those do not give their tokens, so tokens and cost are too low.
        prompt_tokens: Tokens sent for the answers.
        completion_tokens: Tokens written in the answers.
        stored_answers: Answers read from the cache; they were paid for earlier.
        stored_prompt_tokens: Tokens sent for the stored answers.
        stored_completion_tokens: Tokens written in the stored answers.
    """

    prices: Prices | None = None
    requests: int = 0
    retries: int = 0
    failures: int = 0
    answers: int = 0
    without_usage: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored_answers: int = 0
    stored_prompt_tokens: int = 0
    stored_completion_tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def sent(self, again: bool) -> None:
        """Count a request that was sent; ``again`` if it was sent before."""
        with self._lock:
            self.requests += 1
            self.retries += again

    def failed(self) -> None:
        """Count a request that was given up."""
        with self._lock:
            self.failures += 1

    def answered(self, answer: Answer) -> None:
        """Count an answer of the server."""
        with self._lock:
            self.answers += 1
            self.without_usage += answer.prompt_tokens is None or answer.completion_tokens is None
            self.prompt_tokens += answer.prompt_tokens or 0
            self.completion_tokens += answer.completion_tokens or 0

    def found(self, answer: Answer) -> None:
        """Count an answer that the cache had."""
        with self._lock:
            self.stored_answers += 1
            self.stored_prompt_tokens += answer.prompt_tokens or 0
            self.stored_completion_tokens += answer.completion_tokens or 0

    @property
    def cost(self) -> float | None:
        """What this process spent, without the answers from the cache; ``None`` without prices."""
        return self._price(self.prompt_tokens, self.completion_tokens)

    @property
    def stored_cost(self) -> float | None:
        """What the answers from the cache cost when they were received; ``None`` without prices."""
        return self._price(self.stored_prompt_tokens, self.stored_completion_tokens)

    def _price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        if self.prices is None:
            return None
        return (prompt_tokens * self.prices.prompt + completion_tokens * self.prices.completion) / 1e6

    def as_dict(self) -> dict[str, Any]:
        """The counts for JSON, with costs if there are prices."""
        names = [name for name in self.__dataclass_fields__ if name not in ("prices", "_lock")]
        counts: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.prices is not None:
            counts |= {"prices": self.prices._asdict(), "cost": self.cost, "stored_cost": self.stored_cost}
        return counts

    def in_words(self) -> str:
        """One line: ``12 requests (2 again, 1 given up), 9 answers with 900 + 90 tokens, cost 0.001``."""
        line = (
            f"{self.requests} requests ({self.retries} again, {self.failures} given up), {self.answers} answers with "
            f"{self.prompt_tokens} + {self.completion_tokens} tokens"
        )
        line += f" ({self.without_usage} without a count)" if self.without_usage else ""
        line += "" if self.cost is None else f", cost {self.cost:.6g}"
        if self.stored_answers:
            line += (
                f"; {self.stored_answers} answers from the cache with {self.stored_prompt_tokens} + "
                f"{self.stored_completion_tokens} tokens"
            )
            line += "" if self.stored_cost is None else f", cost {self.stored_cost:.6g} then"
        return line
