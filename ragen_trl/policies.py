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

from ragen_trl.kv_cache import SlotCache
from ragen_trl.rollout import Reply, Request, TurnEnv

if TYPE_CHECKING:
    from ragen_trl.chat import Chat


class UnsupportedModelError(ValueError):
    """The model cannot be sampled with a kept KV cache."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_tokens: Tokens of one reply at most, the end-of-turn token included.
        temperature: Divides the logits; 0 is greedy.
        top_k: Keep this many most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of most likely tokens with this much probability; 1 keeps all.

    Raises:
        ValueError: If a value is out of its range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; a reply needs at least 1 token")
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}; use 0 for greedy or a positive number")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; use 0 to keep all tokens or a positive number")


def sample_tokens(
    logits: torch.Tensor, uniforms: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token a row by inverting the cumulative distribution.

    Args:
        logits: (b, vocabulary) next-token logits.
        uniforms: (b,) numbers in [0, 1), float64.
        sampling: Temperature, top-k and top-p.

    Returns:
        (b,) token ids and (b,) their log-probabilities under the temperature, before top-k and top-p: what a
        trainer that divides its logits by the same temperature computes.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.log_softmax(logits, -1).gather(-1, tokens[:, None]).squeeze(-1)
    logprobs = torch.log_softmax(logits / sampling.temperature, -1)
    kept = _top_k_top_p(logprobs, sampling)
    cumulative = kept.double().exp().cumsum(-1)  # float64: 150 000 small terms would drift in float32
    target = uniforms[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)


def _top_k_top_p(logprobs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities with -inf where top-k or top-p cut."""
    if sampling.top_k:
        kth = logprobs.topk(min(sampling.top_k, logprobs.shape[-1]), -1).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < kth, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logprobs.softmax(-1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # probability of all more likely tokens; the first one always stays
        cut = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p)
        logprobs = logprobs.masked_fill(cut, -torch.inf)
    return logprobs


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


class TransformersPolicy:
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
        self.max_context: int | None = model.config.get_text_config().max_position_embeddings
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
    other = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
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


class ScriptedPolicy:
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
