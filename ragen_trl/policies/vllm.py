"""Replies from vLLM: whole contexts as token ids, one request a row.

A row's context lives here and is sent in full at every turn; that the engine does not compute it anew is the work of
its prefix cache, which is on by default. Every row draws from its own dice: each turn's request carries a seed from the
row's own stream, so that a reply does not depend on its place in the batch (the logits do, by rounding). A reply ends
as one of `TransformersPolicy` does. Left out: text, which is never sent; image prompts; vLLM's options beyond those of
``Sampling``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from transformers import PreTrainedModel

from ragen_trl.errors import UserError
from ragen_trl.policies.model_support import context_length
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.stopping import AnswerEnd
from ragen_trl.policies.vllm_engines import Context, Engine
from ragen_trl.rollout.interfaces import Policy, Reply, Request

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_LARGEST_SEED = np.iinfo(np.int64).max


class EngineContextError(UserError, ValueError):
    """The engine's contexts are shorter than the model's, too short for what was asked for."""


@dataclass
class _Row:
    """One context and its dice."""

    random: np.random.Generator
    ids: list[int] = field(default_factory=list)


class VLLMPolicy(Policy):
    """Samples replies from a vLLM engine.

    Args:
        engine: The engine, in this process or behind a server.
        model: The policy whose weights it has; asked for its limits, never run.
        chat: Decodes replies and knows the end-of-turn token.
        sampling: How tokens are drawn.
        max_length: Tokens a trajectory may have after its first prompt, if there is a limit. An engine whose contexts
            are shorter than the model's has to take them.
        refresh: Called by ``begin``; makes the engine's weights those of the policy.

    Raises:
        EngineContextError: By ``reply``, if the engine's contexts are shorter than the model's and a first prompt with
            ``max_length`` tokens does not fit.
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
        self._stop_ids = chat.stop_ids(model.generation_config.eos_token_id)
        self._answer_end = AnswerEnd(chat.tokenizer) if sampling.stop_at_answer else None
        self._decode = chat.decode_reply
        self._refresh = refresh
        self._rows: dict[int, _Row] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one a seed, on the policy as it is now."""
        self._refresh()
        self._rows = {row: _Row(np.random.default_rng(seed)) for row, seed in enumerate(seeds)}

    def end(self, rows: Sequence[int]) -> None:
        """Forget finished rows."""
        for finished in rows:
            del self._rows[finished]

    def goes_on(self, playing: bool) -> bool:
        """Behind one server all processes take a turn together, as long as any of them plays."""
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
            limit = self.sampling.max_tokens if request.room is None else min(self.sampling.max_tokens, request.room)
            contexts.append(Context(list(row.ids), int(row.random.integers(_LARGEST_SEED)), limit))
        completions = self._engine.complete(contexts, self.sampling, self._stop_ids)
        replies = []
        for request, completion in zip(requests, completions, strict=True):
            ids = completion.ids
            self._rows[request.row].ids.extend(ids)
            replies.append(Reply(self._decode(ids), tuple(ids), tuple(completion.logprobs), not self._ended(ids)))
        return replies

    def _ended(self, ids: list[int]) -> bool:
        """Whether the model ended its reply, and not the limit."""
        return ids[-1] in self._stop_ids or (self._answer_end is not None and self._answer_end.reached(ids))

    def _check_room(self, prompt: int) -> None:
        if self._needed is None or prompt + self._needed <= self._engine.max_context:
            return
        raise EngineContextError(
            f"vLLM takes contexts of {self._engine.max_context} tokens, fewer than the model itself; this first prompt "
            f"has {prompt}, and max_completion_length is {self._needed}: set vllm_max_model_length (or the server's "
            f"--max-model-len) to at least {prompt + self._needed}, or lower max_completion_length"
        )
