"""Replies from the model in training: a Transformers model with a kept KV cache.

The model reads each token once. Contexts stay in a ``SlotCache`` between turns, new observations are appended, and
finished episodes leave. Rows that begin with one prompt, as a group does, share the pass that reads it. Every row draws
from its own random stream, so a reply does not depend on which other rows share its batch.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ragen_trl.policies.kv_cache import SlotCache
from ragen_trl.policies.model_calls import (
    cache_name,
    lora_merged,
    mask_for,
    unwrapped,
    weights_cast_once,
    without_router_logits,
)
from ragen_trl.policies.models import check_supported, context_length
from ragen_trl.policies.sampling import ReplyEnd, Sampling, check_drawn, sample_tokens
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.float64 import float64_tensor
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

# Bounds of one pass that reads prompts: tokens with their padding, and numbers of the attention mask, which has a row
# of slots for each token. Longer prompts are read in pieces.
MOST_TOKENS = 4096
MOST_OF_A_MASK = 8192 * MOST_TOKENS


@dataclass(eq=False)
class Row:
    """One episode: its place in the cache, its own random generator, and the reply being sampled."""

    number: int  # of the episode in the rollout
    random: np.random.Generator
    index: int = -1  # of its row in the cache, which it joins with its first request
    length: int = 0  # tokens in the cache
    unfed: list[int] = field(default_factory=list)  # tokens of the context that the model has not read yet
    pictures: tuple[Picture, ...] = ()  # among the unfed tokens
    ids: list[int] = field(default_factory=list)  # the reply
    logprobs: list[float] = field(default_factory=list)
    draws: list[float] = field(default_factory=list)  # a number in [0, 1) for each token that the reply may have
    budget: int = 0  # the most tokens that the reply may have
    open: bool = False  # whether the reply goes on
    ended: bool = False  # by the model, and not by the budget

    def begin_turn(self, request: Request, max_tokens: int) -> None:
        """A new reply, of at most so many tokens, to what the request brings."""
        if request.context_ids is not None:  # the row's cache is overwritten from its first slot
            self.length, self.unfed = 0, list(request.context_ids)
        self.unfed.extend(request.new_ids)
        self.pictures = request.pictures
        self.ids, self.logprobs, self.open, self.ended = [], [], True, False
        self.draws = self.random.random(max_tokens).tolist()
        self.budget = request.max_tokens(max_tokens)

    @property
    def reads(self) -> object:
        """What the model reads next for this row; equal for empty rows that begin with the same prompt."""
        return self.index if self.length else (tuple(self.unfed), self.pictures)

    def append(self, token: int, logprob: float, end: ReplyEnd) -> None:
        """Go on with this token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.unfed.append(token)
        self.ended = end.reached(self.ids)
        self.open = not self.ended and len(self.ids) < self.budget


class TransformersPolicy(Policy):
    """Samples replies from a causal language model.

    A reply ends with the template's end-of-turn token, the tokenizer's end-of-sequence token, a token that the model's
    generation config names or, with ``stop_at_answer``, the token that completes ``</answer>``.

    Args:
        model: The model. Its mode (train or eval) is restored after each call.
        chat: Decodes replies and knows the end-of-turn token.
        sampling: How tokens are drawn.
        autocast: Makes the context in which the model runs, so it computes in the trainer's precision.
        merge_lora: Whether replies are sampled with LoRA merged into the weights.

    Raises:
        UnsupportedModelError: If the model's replies would be sampled wrongly (`models.check_supported`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
        merge_lora: bool = False,
    ) -> None:
        check_supported(model)
        self.model = model
        self.chat: Chat | None = chat
        self.max_context: int | None = context_length(model)
        self.sampling = sampling
        self._decode, self._autocast = chat.decode_reply, autocast
        stop_ids = chat.stop_ids(model.generation_config.eos_token_id)
        self._end = ReplyEnd(chat.tokenizer, stop_ids, sampling.stop_at_answer)
        self._merged = lora_merged if merge_lora else nullcontext
        self._cache_name = cache_name(type(unwrapped(model)))
        # What a pass costs beside its tokens, in tokens: 80 to 500 of a small model on a CPU, 20 of SmolLM2-135M.
        self._pass_tokens = 32 if model.device.type == "cpu" and model.num_parameters() > 2**25 else 512
        self._rows: dict[int, Row] = {}
        self._cache = SlotCache()

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._rows = {number: Row(number, np.random.default_rng(seed)) for number, seed in enumerate(seeds)}
        self._cache = SlotCache()

    def end(self, rows: Sequence[int]) -> None:
        """As `Policy.end`. After the last row free memory goes back to the system."""
        if not rows:
            return
        for finished in rows:
            del self._rows[finished]
        self._arrange()
        if not self._rows and self.model.device.type == "cpu":
            _return_free_memory()

    @torch.no_grad()
    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`; `NotFiniteError` if the logits of a token are NaN or infinite."""
        if not requests:
            return []
        was_training = self.model.training
        self.model.eval()
        try:
            with self._merged(self.model), self._autocast(), weights_cast_once(self.model):
                return self._reply(requests)
        finally:
            self.model.train(was_training)

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        rows = [self._rows[request.row] for request in requests]
        for row, request in zip(rows, requests, strict=True):
            row.begin_turn(request, self.sampling.max_tokens)
        joining = [row for row in rows if row.index < 0]
        for index, row in enumerate(joining, self._cache.num_rows):
            row.index = index
        self._cache.add_rows(len(joining))
        active, logits = self._read(rows)  # logits (b, vocabulary), in the order of the active rows
        wasted = 0  # tokens of padding that closed rows were computed for
        while True:
            self._sample(active, logits)
            still_open = [row for row in active if row.open]
            if not still_open:
                break
            wasted += len(active) - len(still_open)
            if wasted >= self._pass_tokens or len(still_open) <= len(active) // 2:
                active, wasted = still_open, 0
                self._arrange(active)
            logits = self._feed(active)
        return [Reply(self._decode(row.ids), tuple(row.ids), tuple(row.logprobs), cut=not row.ended) for row in rows]

    def _sample(self, rows: Sequence[Row], logits: torch.Tensor) -> None:
        """Draw the next token of every open row from its logits, (b, vocabulary)."""
        draws = np.array([[row.draws[len(row.ids)] if row.open else 0.0] for row in rows])
        drawn = sample_tokens(logits, float64_tensor(draws, self.model.device), self.sampling)  # (b, 1) each
        tokens, logprobs = (each.flatten().tolist() for each in drawn)
        found = [one for one in zip(rows, tokens, logprobs, strict=True) if one[0].open]
        check_drawn([logprob for _, _, logprob in found])
        for row, token, logprob in found:
            row.append(token, logprob, self._end)

    def _arrange(self, first: Sequence[Row] = ()) -> None:
        """Put these rows first in the cache, in this order, and drop rows that have left."""
        chosen = {row.number for row in first}
        others = [row for row in self._rows.values() if row.index >= 0 and row.number not in chosen]
        order = [*first, *others]
        self._cache.select([row.index for row in order])
        for index, row in enumerate(order):
            row.index = index

    def _read(self, rows: Sequence[Row]) -> tuple[list[Row], torch.Tensor]:
        """Feed each row's unfed tokens; returns the rows in the order of the cache, and their next logits."""
        leaders: dict[object, Row] = {}  # for each different prompt the row that reads it for all rows with it
        for row in rows:
            leaders.setdefault(row.reads, row)
        followers = [row for row in rows if leaders[row.reads] is not row]
        sources = [leaders[row.reads] for row in followers]
        readers = sorted(leaders.values(), key=lambda row: len(row.unfed), reverse=True)
        self._arrange([*readers, *followers])
        logits = torch.cat([self._feed(together) for together in self._passes(readers)])
        if followers:
            of_sources, of_followers = ([row.index for row in each] for each in (sources, followers))
            self._cache.copy(of_sources, of_followers, max(row.length for row in sources))
            logits = logits[[*range(len(readers)), *of_sources]]  # readers are first in the cache
            for row, source in zip(followers, sources, strict=True):
                row.length, row.unfed = source.length, []
        return [*readers, *followers], logits

    def _passes(self, rows: Sequence[Row]) -> list[list[Row]]:
        """The rows, widest first, that are read together; cut where the others' padding would cost more than a pass."""
        most = most_tokens(max(row.length + len(row.unfed) for row in rows))
        passes = [[rows[0]]]
        for place, row in enumerate(rows[1:], 1):
            widest = len(passes[-1][0].unfed)
            padding = (widest - len(row.unfed)) * (len(rows) - place)
            if padding >= self._pass_tokens or (len(passes[-1]) + 1) * widest > most:
                passes.append([])
            passes[-1].append(row)
        return passes

    def _feed(self, rows: Sequence[Row]) -> torch.Tensor:
        """Feed the unfed tokens of open rows that are neighbours in the cache; returns (b, vocabulary) logits.

        Closed rows get padding instead. A single row that is too long for one pass is read in pieces.
        """
        unfed = [row.unfed if row.open else [] for row in rows]
        width, longest = max(map(len, unfed)), max(row.length + len(row.unfed) for row in rows)
        self._cache.reserve(longest)
        ids, slots, positions = [], [], []
        for row, new in zip(rows, unfed, strict=True):
            padding = width - len(new)  # on the left, so that each last token is in the last column
            span = range(row.length, row.length + len(new))
            ids.append([0] * padding + new)
            slots.append([self._cache.spare_slot] * padding + list(span))
            positions.append([0] * padding + list(span))
            if row.open:
                row.length, row.unfed = row.length + len(new), []
        piece, whole_model = most_tokens(longest) if len(rows) == 1 else width, unwrapped(self.model)
        for begin in range(0, width, piece):
            tokens, places, position = (  # (b, n) each
                torch.tensor([row[begin : begin + piece] for row in each], device=self.model.device)
                for each in (ids, slots, positions)
            )
            # Single tokens see all slots, so that shapes repeat.
            seen = self._cache.capacity if width == 1 else 1 + int(position[:, -1].max())
            self._cache.place(rows[0].index, places, seen)
            visible = torch.arange(seen, device=position.device) <= position[:, None, :, None]  # (b, 1, n, seen)
            output = self.model(
                **self._inputs(rows, tokens, position),
                attention_mask=mask_for(whole_model, visible),
                **{self._cache_name: self._cache},
                use_cache=True,
                logits_to_keep=1,
                **without_router_logits(whole_model),
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _inputs(self, rows: Sequence[Row], ids: torch.Tensor, position: torch.Tensor) -> dict[str, Any]:
        """What the model reads in a pass over (b, n) tokens of these rows."""
        return {"input_ids": ids, "position_ids": position}


def most_tokens(length: int) -> int:
    """The most tokens that one pass may read, padding included, with contexts of up to ``length`` tokens."""
    return max(1, min(MOST_TOKENS, MOST_OF_A_MASK // length))


def _return_free_memory() -> None:
    """Return what is free inside this process to the system, if its C library is glibc, which keeps it in pieces.

    Rollouts allocate tensors of ever different sizes: a process with two gigabytes of them came to hold twelve.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
