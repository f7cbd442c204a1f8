"""Policies that say a given number of tokens, and environments for them."""

from collections.abc import Sequence

from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import Failure
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv
from tests.support.ragen_trl.chat_families import FAMILIES

CHAT = Chat(FAMILIES["chatml"].tokenizer())


class Talker(Policy):
    """Says "row n" in tokens, as many as it is given, and now and then has nothing to say.

    Args:
        chat: Of a policy with tokens.
        tokens: Of a reply at most; as many as that many or the room allow are a cut reply.
        ends_after: Tokens after which a reply ends by itself.
        max_context: The model's.
        errors: (row, turn) of requests that fail.
    """

    def __init__(
        self,
        chat: Chat | None = CHAT,
        tokens: int = 9,
        ends_after: int = 3,
        max_context: int | None = None,
        errors: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.chat, self.max_context = chat, max_context
        self.tokens, self.ends_after, self.errors = tokens, ends_after, errors
        self.asked: list[int] = []

    def begin(self, seeds: Sequence[int]) -> None:
        self.asked = [0] * len(seeds)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        self.asked[request.row] += 1
        if (request.row, self.asked[request.row]) in self.errors:
            return Reply("", error=f"429 for row {request.row}")
        room = self.tokens if request.room is None else min(self.tokens, request.room)
        length = min(self.ends_after, room)
        ids, logprobs = ((5,) * length, (-1.0,) * length) if self.chat else ((), ())
        return Reply(f"row {request.row}", ids, logprobs, cut=length < self.ends_after)


def starts(count: int) -> list[Start]:
    return [Start(seed=10 + row, sampling_seed=30 + row) for row in range(count)]


class Shelf:
    """New environments for those that failed, and a record of what was asked for."""

    def __init__(self, *spares: TurnEnv) -> None:
        self.spares = list(spares)
        self.failed: list[tuple[TurnEnv, str]] = []

    def renew(self, env: TurnEnv, failure: Failure) -> TurnEnv:
        self.failed.append((env, failure.kind))
        return self.spares.pop(0)
