"""Replies from vLLM: whole contexts as token ids, one request a row.

A row's context is sent in full at every turn; the engine's prefix cache avoids computing it again. Each turn sends a
seed drawn from the row's own, so a reply does not depend on its place in the batch (its logits do, by rounding).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from transformers import PreTrainedModel

from ragen_trl.policies.model_support import context_length
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.stopping import ReplyEnd
from ragen_trl.policies.vllm.engines import Engine, EngineError
from ragen_trl.policies.vllm.requests import Context
from ragen_trl.rollout.interfaces import Policy, Reply, Request

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_LARGEST_SEED = np.iinfo(np.int64).max


@dataclass
class _Row:
    random: np.random.Generator
    ids: list[int] = field(default_factory=list)


class VLLMPolicy(Policy):
    """Samples replies from a vLLM engine.

    ``model`` is only read for its limits. An engine whose contexts are shorter than the model's must have room for a
    first prompt and ``max_length`` tokens. ``refresh`` copies the policy's weights to the engine; ``begin`` calls it.

    Raises:
        EngineError: By ``reply``, if there is no such room.
    """

    def __init__(
        self,
        engine: Engine,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        max_length: int | None = None,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        known = context_length(model)
        self.chat: Chat | None = chat
        self.max_context: int | None = min(engine.max_context, known or engine.max_context)
        self.sampling = sampling
        self._needed = max_length if known is None or engine.max_context < known else None
        self._engine = engine
        self._end = ReplyEnd(chat, model, sampling.stop_at_answer)
        self._decode = chat.decode_reply
        self._refresh = refresh
        self._rows: dict[int, _Row] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed, with the policy's present weights."""
        self._refresh()
        self._rows = {row: _Row(np.random.default_rng(seed)) for row, seed in enumerate(seeds)}

    def end(self, rows: Sequence[int]) -> None:
        """Forget finished rows."""
        for finished in rows:
            del self._rows[finished]

    def goes_on(self, playing: bool) -> bool:
        """With one server for all processes, they take turns together as long as any of them plays."""
        return self._engine.anyone(playing)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Append each request's tokens to its row and sample a reply."""
        contexts = []
        for request in requests:
            row = self._rows[request.row]
            if not row.ids:
                self._check_room(len(request.new_ids))
            if request.context_ids is not None:
                row.ids = list(request.context_ids)
            row.ids.extend(request.new_ids)
            limit = request.max_tokens(self.sampling.max_tokens)
            seed = int(row.random.integers(_LARGEST_SEED))
            contexts.append(Context(list(row.ids), seed, limit, request.row))
        completions = self._engine.complete(contexts, self.sampling, self._end.stop_ids)
        replies = []
        for request, completion in zip(requests, completions, strict=True):
            ids = completion.ids
            self._rows[request.row].ids.extend(ids)
            cut = not self._end.reached(ids)
            replies.append(Reply(self._decode(ids), tuple(ids), tuple(completion.logprobs), cut))
        return replies

    def _check_room(self, prompt: int) -> None:
        if self._needed is None or prompt + self._needed <= self._engine.max_context:
            return
        raise EngineError(
            f"vLLM takes contexts of {self._engine.max_context} tokens, fewer than the model; this first prompt has "
            f"{prompt} tokens, and max_completion_length is {self._needed}: set vllm_max_model_length (or the server's "
            f"--max-model-len) to at least {prompt + self._needed}, or lower max_completion_length"
        )
