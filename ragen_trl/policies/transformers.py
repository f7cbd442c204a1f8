"""Replies from the model in training: a Transformers model with a kept KV cache.

The model reads each token once. Contexts stay in a ``SlotCache`` between turns, new observations are appended, and
finished episodes leave. Rows that begin with one prompt, as a group does, share the pass that reads it. Every row draws
from its own random stream, so a reply does not depend on which other rows share its batch. Many long prompts are read
in several passes, a very long one in pieces.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
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
from ragen_trl.system.heap import return_free_memory
from ragen_trl.system.precision import LARGE
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_GROUPS = "TRANSFORMERS_SDPA_FORCE_GQA"
# Bounds of one pass that reads prompts: tokens with their padding; numbers of the attention mask, which has a row of
# slots for each token; and slots of all rows, which attention copies where several heads share their keys.
MOST_TOKENS = 4096
MOST_OF_A_MASK = 8192 * MOST_TOKENS
MOST_SLOTS = 32 * MOST_TOKENS


@dataclass(eq=False)
class Row:
    """One episode: its place in the cache, its own random generator, and the reply being sampled.

    Attributes:
        number: Of the episode in the rollout.
        random: Draws its tokens.
        index: Of its row in the cache, which it joins with its first request.
        length: Tokens in the cache.
        unfed: Tokens of the context that the model has not read yet.
        pictures: Those among the unfed tokens.
        ids: The reply.
        logprobs: Of the reply.
        draws: A number in [0, 1) for each token that the reply may have.
        budget: The most tokens that the reply may have.
        open: Whether the reply goes on.
        ended: Whether the model has ended it, and not the budget.
    """

    number: int
    random: np.random.Generator
    index: int = -1
    length: int = 0
    unfed: list[int] = field(default_factory=list)
    pictures: tuple[Picture, ...] = ()
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    draws: list[float] = field(default_factory=list)
    budget: int = 0
    open: bool = False
    ended: bool = False

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

    def mark_read(self) -> None:
        """The model has read the unfed tokens."""
        self.length, self.unfed = self.length + len(self.unfed), []

    def append(self, token: int, logprob: float, end: ReplyEnd) -> None:
        """Go on with this token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.unfed.append(token)
        self.ended = end.reached(self.ids)
        self.open = not self.ended and len(self.ids) < self.budget


class TransformersPolicy(Policy):
    """Samples replies from a causal language model. `sampling.ReplyEnd` says what ends a reply.

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
        self._decode = chat.decode_reply
        self._end = ReplyEnd(chat, model, sampling.stop_at_answer)
        self._autocast = autocast
        self._merged = lora_merged if merge_lora else nullcontext
        self._pass_tokens = _tokens_of_a_pass(model)
        self._cache_name = cache_name(type(unwrapped(model)))
        self._rows: dict[int, Row] = {}
        self._cache = SlotCache()

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed."""
        self._rows = {number: Row(number, np.random.default_rng(seed)) for number, seed in enumerate(seeds)}
        self._cache = SlotCache()

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache. After the last one free memory goes back to the system."""
        if not rows:
            return
        for finished in rows:
            del self._rows[finished]
        self._arrange()
        if not self._rows and self.model.device.type == "cpu":
            return_free_memory()

    @torch.no_grad()
    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Append each request's tokens to its row and sample a reply.

        Raises:
            NotFiniteError: If the logits of a token are NaN or infinite.
        """
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
            logits = self._continue(active)
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
        widths, longest = [len(row.unfed) for row in readers], max(row.length + len(row.unfed) for row in readers)
        passes = _passes(widths, most_tokens(longest), most_rows(longest), self._pass_tokens)
        self._arrange([*readers, *followers])
        logits = torch.cat([self._feed(readers[span.start : span.stop], most_tokens(longest)) for span in passes])
        if followers:
            of_sources, of_followers = ([row.index for row in each] for each in (sources, followers))
            self._cache.copy(of_sources, of_followers, max(row.length for row in sources))
            logits = logits[[*range(len(readers)), *of_sources]]  # readers are first in the cache
            for row, source in zip(followers, sources, strict=True):
                row.length, row.unfed = source.length, []
        return [*readers, *followers], logits

    def _feed(self, rows: list[Row], most: int) -> torch.Tensor:
        """Feed the unfed tokens of rows that are neighbours in the cache; returns (b, vocabulary).

        A row with more than ``most`` tokens, which has no neighbours, is read in pieces of that length.
        """
        width = max(len(row.unfed) for row in rows)
        self._cache.reserve(max(row.length + len(row.unfed) for row in rows))
        ids, slots, positions = [], [], []
        for row in rows:
            padding = width - len(row.unfed)  # on the left, so that each last token is in the last column
            span = range(row.length, row.length + len(row.unfed))
            ids.append([0] * padding + row.unfed)
            slots.append([self._cache.spare_slot] * padding + list(span))
            positions.append([0] * padding + list(span))
            row.mark_read()
        piece = most if len(rows) == 1 else width
        for begin in range(0, width, piece):
            columns = slice(begin, begin + piece)
            read, places, known = ([each[columns] for each in lists] for lists in (ids, slots, positions))
            logits = self._forward(rows, read, places, known, 1 + max(each[-1] for each in known))
        return logits

    def _continue(self, rows: Sequence[Row]) -> torch.Tensor:
        """Feed the tokens just sampled to the first rows of the cache. Closed rows get padding instead."""
        self._cache.reserve(max(row.length for row in rows) + 1)
        ids = [row.unfed if row.open else [0] for row in rows]
        slots = [[row.length if row.open else self._cache.spare_slot] for row in rows]
        positions = [[row.length if row.open else 0] for row in rows]
        for row in rows:
            if row.open:
                row.mark_read()
        return self._forward(rows, ids, slots, positions, self._cache.capacity)

    def _forward(
        self,
        rows: Sequence[Row],
        ids: list[list[int]],
        slots: list[list[int]],
        positions: list[list[int]],
        length: int,
    ) -> torch.Tensor:
        """One pass over (b, n) tokens that attends to ``length`` slots; returns (b, vocabulary) logits of the last."""
        tokens, position = self._tensor(ids), self._tensor(positions)  # (b, n)
        self._cache.place(rows[0].index, self._tensor(slots), length)
        visible = torch.arange(length, device=position.device) <= position[:, None, :, None]  # (b, 1, n, length)
        with _heads_in_groups(tokens):
            output = self.model(
                **self._inputs(rows, tokens, slots, position),
                attention_mask=mask_for(unwrapped(self.model), visible),
                **{self._cache_name: self._cache},
                use_cache=True,
                logits_to_keep=1,
                **without_router_logits(unwrapped(self.model)),
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _inputs(
        self, rows: Sequence[Row], ids: torch.Tensor, slots: list[list[int]], position: torch.Tensor
    ) -> dict[str, Any]:
        """What the model reads in a pass over (b, n) tokens of these rows."""
        return {"input_ids": ids, "position_ids": position}

    def _tensor(self, rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor(rows, device=self.model.device)


@contextmanager
def _heads_in_groups(ids: torch.Tensor) -> Iterator[None]:
    """Let several query heads read the same keys, where Transformers would copy all keys of its cache for each head.

    Transformers' switch for it is an environment variable. On the CPU the results are the same bits; a GPU's fast
    kernels take no groups together with a mask.
    """
    if ids.device.type != "cpu" or ids.shape[1] == 1:
        yield
        return
    before = os.environ.get(_GROUPS)
    os.environ[_GROUPS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_GROUPS]
        else:
            os.environ[_GROUPS] = before


def most_tokens(length: int) -> int:
    """The most tokens that one pass may read, padding included, with contexts of up to ``length`` tokens."""
    return max(1, min(MOST_TOKENS, MOST_OF_A_MASK // length))


def most_rows(length: int) -> int:
    """The most rows of one pass that reads prompts."""
    return max(1, MOST_SLOTS // length)


def _tokens_of_a_pass(model: PreTrainedModel) -> int:
    """The fixed cost of a forward pass, in tokens: of a small model on a CPU 80 to 500, of SmolLM2-135M about 20."""
    return 32 if model.device.type == "cpu" and model.num_parameters() > LARGE else 512


def _passes(widths: Sequence[int], tokens: int, rows: int, pass_tokens: int) -> list[range]:
    """The rows, widest first, that are read together; cut where the others' padding would cost more than a pass."""
    cuts = [0]
    for row in range(1, len(widths)):
        widest = widths[cuts[-1]]
        padding = (widest - widths[row]) * (len(widths) - row)
        if padding >= pass_tokens or row + 1 - cuts[-1] > min(rows, tokens // widest):
            cuts.append(row)
    return [range(*span) for span in pairwise([*cuts, len(widths)])]
