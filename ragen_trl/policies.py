"""The only code that produces replies: a Transformers model with a kept KV cache, or a script.

The model backend feeds each token once: contexts stay in a ``SlotCache`` between turns, new observations are
appended, finished episodes leave. Every row draws from its own random stream, so a reply does not depend on which
other rows share its batch. Left out here: vLLM and HTTP backends, tensor-parallel generation.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedModel

from ragen_trl.errors import UserError
from ragen_trl.kv_cache import SlotCache
from ragen_trl.rollout import Policy, Reply, Request, TurnEnv
from ragen_trl.sampling import Sampling, sample_tokens

if TYPE_CHECKING:
    from ragen_trl.chat import Chat


class UnsupportedModelError(UserError, ValueError):
    """The model cannot be sampled with a kept KV cache."""


@dataclass
class _Row:
    """One context: its place in the cache, its own dice, and the reply being sampled."""

    index: int
    random: np.random.Generator
    length: int = 0  # tokens in the cache
    unfed: list[int] = field(default_factory=list)  # tokens of the context that the model has not seen yet
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    budget: int = 0
    open: bool = False

    def begin_turn(self, request: Request, max_tokens: int) -> None:
        self.unfed.extend(request.new_ids)
        self.ids, self.logprobs, self.open = [], [], True
        self.budget = max_tokens if request.room is None else min(max_tokens, request.room)

    def take(self, token: int, logprob: float, stop_ids: frozenset[int]) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.unfed.append(token)
        self.open = token not in stop_ids and len(self.ids) < self.budget


class TransformersPolicy(Policy):
    """Samples replies from a causal language model.

    What ends a reply: the template's end-of-turn token, the tokenizer's end-of-sequence token, and those the model's
    generation config names.

    Args:
        model: The model; its mode (train or eval) is restored after each call.
        chat: Decodes replies and knows the end-of-turn token.
        sampling: How tokens are drawn.
        autocast: Context in which the model runs, so that it computes in the trainer's precision.

    Raises:
        UnsupportedModelError: If the model has sliding-window or recurrent layers, or an attention implementation
            that takes no custom mask.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        _check_supported(model)
        self.model = model
        self.chat: Chat | None = chat
        self.max_context: int | None = _context_length(model)
        self.sampling = sampling
        self._decode = chat.decode_reply
        self._stop_ids = chat.stop_ids(model.generation_config.eos_token_id)
        self._autocast = autocast
        self._additive_mask = model.config._attn_implementation == "eager"
        self._rows: dict[int, _Row] = {}
        self._cache = SlotCache(0)

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one a seed."""
        self._rows = {row: _Row(row, np.random.default_rng(seed)) for row, seed in enumerate(seeds)}
        self._cache = SlotCache(len(seeds))

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache."""
        if not rows:
            return
        for finished in rows:
            del self._rows[finished]
        kept = list(self._rows.values())
        self._cache.keep(torch.tensor([row.index for row in kept], dtype=torch.long, device=self.model.device))
        for index, row in enumerate(kept):
            row.index = index

    @torch.no_grad()
    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Append each request's tokens to its row and sample a reply."""
        was_training = self.model.training
        self.model.eval()
        try:
            with self._autocast():
                return self._reply(requests)
        finally:
            self.model.train(was_training)

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        if not requests:
            return []
        rows = [self._rows[request.row] for request in requests]
        for row, request in zip(rows, requests, strict=True):
            row.begin_turn(request, self.sampling.max_tokens)
        draws = np.stack([row.random.random(self.sampling.max_tokens) for row in rows])
        uniforms = torch.from_numpy(draws).to(self.model.device)  # (b, max_tokens)
        active = list(range(len(rows)))
        for step in range(self.sampling.max_tokens):
            logits = self._forward([rows[i] for i in active])
            tokens, logprobs = sample_tokens(logits, uniforms[active, step], self.sampling)
            for i, token, logprob in zip(active, tokens.tolist(), logprobs.tolist(), strict=True):
                if rows[i].open:
                    rows[i].take(token, logprob, self._stop_ids)
            still_open = [i for i in active if rows[i].open]
            if not still_open:
                break
            if len(still_open) <= len(active) // 2:  # closed rows cost a little until it pays to leave them out
                active = still_open
        return [self._finish(row) for row in rows]

    def _finish(self, row: _Row) -> Reply:
        cut = row.ids[-1] not in self._stop_ids
        return Reply(self._decode(row.ids), tuple(row.ids), tuple(row.logprobs), cut)

    def _forward(self, rows: list[_Row]) -> torch.Tensor:
        """Feed each row's unfed tokens; returns (b, vocabulary) logits after the last token of every row."""
        device = self.model.device
        width = max(len(row.unfed) for row in rows)
        self._cache.reserve(max(row.length + len(row.unfed) for row in rows))
        ids, slots, positions = [], [], []
        for row in rows:
            padding = width - len(row.unfed)  # on the left, so that every row's last token is in the last column
            span = range(row.length, row.length + len(row.unfed))
            ids.append([0] * padding + row.unfed)
            slots.append([self._cache.spare_slot] * padding + list(span))
            positions.append([0] * padding + list(span))
            row.length, row.unfed = span.stop, []
        position = torch.tensor(positions, device=device)  # (b, n)
        indices = [row.index for row in rows]
        everyone = indices == list(range(self._cache.num_rows))
        self._cache.rows = None if everyone else torch.tensor(indices, device=device)
        self._cache.slots = torch.tensor(slots, device=device)
        self._cache.length = max(row.length for row in rows)
        visible = torch.arange(self._cache.length, device=device) <= position[:, :, None]  # (b, n, length)
        output = self.model(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=self._mask(visible[:, None]),
            position_ids=position,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _mask(self, visible: torch.Tensor) -> torch.Tensor:
        """SDPA takes the boolean mask; eager attention adds it to the scores."""
        if not self._additive_mask:
            return visible
        dtype = self.model.dtype
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(
            ~visible, torch.finfo(dtype).min
        )


def _check_supported(model: PreTrainedModel) -> None:
    config = model.config.get_text_config()
    name = config.name_or_path or config.model_type
    layer_types = getattr(config, "layer_types", None) or ()
    other = sorted(set(layer_types) - {"full_attention"})
    if not layer_types and getattr(config, "sliding_window", None) is not None:  # Mistral, Phi-3: one kind for all
        other = ["sliding_attention"]
    if model._is_stateful:
        other = ["recurrent"]
    if other:
        raise UnsupportedModelError(
            f"{name!r} has {', '.join(other)} layers; the Transformers backend keeps a KV cache across turns only for "
            "models whose layers all attend to the full context (Qwen2, Qwen3, Llama, SmolLM2, …). Use one of those"
        )
    attention = model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise UnsupportedModelError(
            f"{name!r} was loaded with attn_implementation={attention!r}, which takes no custom attention mask; "
            'pass model_init_kwargs={"attn_implementation": "sdpa"}'
        )


def _context_length(model: PreTrainedModel) -> int | None:
    """Positions the model knows, ``None`` if its config names no limit (ALiBi models)."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


class ScriptedPolicy(Policy):
    """Answers by a script that may look at the environment: oracles, random play, demonstrations.

    Args:
        script: Writes a reply, given the environment and the row's own generator.
        chat: If given, replies also carry token ids (token-exact demonstrations), without log-probabilities.
    """

    def __init__(self, script: Callable[[TurnEnv, np.random.Generator], str], chat: "Chat | None" = None) -> None:
        self._script = script
        self.chat = chat
        self.max_context: int | None = None
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """Give every row its own generator."""
        self._random = [np.random.default_rng(seed) for seed in seeds]

    def end(self, rows: Sequence[int]) -> None:
        """Nothing is kept for a row."""

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Run the script once a request."""
        texts = [self._script(request.env, self._random[request.row]) for request in requests]
        if self.chat is None:
            return [Reply(text) for text in texts]
        return [Reply(text, tuple(self.chat.encode_reply(text))) for text in texts]
