"""Replies from the model in training: a Transformers model with a kept KV cache.

The model reads each token once. Contexts stay in a ``SlotCache`` between turns, new observations are appended, finished
episodes leave. Rows whose contexts are equal, as those of a group are at first, share the pass that reads on; rows that
begin alike, as all starts of an environment do, share the pass over what they have in common. Every row draws from its
own random stream, so a reply does not depend on which other rows share its batch.

A pass is bounded: many long prompts are read in several passes, and one that is longer than that in pieces. The cache
grows with the rows that begin.

Left out here: tensor-parallel generation, and separate passes for rows of different lengths while tokens are sampled,
which would cost more in passes than they save in attention.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ragen_trl.policies.kv_cache import SlotCache
from ragen_trl.policies.model_support import check_supported, context_length, mask_for, unwrapped, without_router_logits
from ragen_trl.policies.sampling import Sampling, sample_tokens
from ragen_trl.policies.shared_reading import common_beginnings
from ragen_trl.policies.stopping import ReplyEnd
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.float64 import float64_tensor

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_GROUPS = "TRANSFORMERS_SDPA_FORCE_GQA"
_SMALL = 2**25  # parameters
# Bounds of one pass that reads prompts: tokens with their padding; numbers of the attention mask, which has a row of
# slots for each token; and slots of all rows, which attention copies where several heads share their keys.
MOST_TOKENS = 4096
MOST_OF_A_MASK = 8192 * MOST_TOKENS
MOST_SLOTS = 32 * MOST_TOKENS


@dataclass(eq=False)
class _Row:
    """One context: its place in the cache, its own random generator, and the reply being sampled."""

    random: np.random.Generator
    index: int = -1  # of its row in the cache, which it joins with its first request
    read: list[int] = field(default_factory=list)  # tokens of the context that are in the cache
    unfed: list[int] = field(default_factory=list)  # tokens of the context that the model has not read yet
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    budget: int = 0
    open: bool = False
    ended: bool = False  # by the model, not by the budget

    def begin_turn(self, request: Request, max_tokens: int) -> None:
        if request.context_ids is not None:  # the row's cache is overwritten from its first slot
            self.read, self.unfed = [], list(request.context_ids)
        self.unfed.extend(request.new_ids)
        self.ids, self.logprobs, self.open, self.ended = [], [], True, False
        self.budget = request.max_tokens(max_tokens)

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return len(self.read)

    @property
    def context(self) -> tuple[int, ...]:
        """All tokens, with those that the model has not read yet."""
        return (*self.read, *self.unfed)

    def fed(self, count: int | None = None) -> None:
        """The model has read so many of the unfed tokens, or all of them."""
        self.read += self.unfed[:count]
        self.unfed = [] if count is None else self.unfed[count:]

    def take(self, token: int, logprob: float, end: ReplyEnd) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.unfed.append(token)
        self.ended = end.reached(self.ids)
        self.open = not self.ended and len(self.ids) < self.budget


class TransformersPolicy(Policy):
    """Samples replies from a causal language model. `stopping.ReplyEnd` says what ends a reply.

    Args:
        model: The model. Its mode (train or eval) is restored after each call.
        chat: Decodes replies and knows the end-of-turn token.
        sampling: How tokens are drawn.
        autocast: Makes the context in which the model runs, so that it computes in the trainer's precision.

    Raises:
        UnsupportedModelError: If the model has sliding-window or recurrent layers, takes no position ids (ALiBi), or
            has an attention implementation that takes no custom mask.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        check_supported(model)
        self.model = model
        self.chat: Chat | None = chat
        self.max_context: int | None = context_length(model)
        self.sampling = sampling
        self._decode = chat.decode_reply
        self._end = ReplyEnd(chat, model, sampling.stop_at_answer)
        self._autocast = autocast
        self._pass_tokens = _tokens_of_a_pass(model)
        self._rows: dict[int, _Row] = {}
        self._cache = SlotCache(0)

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed."""
        self._rows = {row: _Row(np.random.default_rng(seed)) for row, seed in enumerate(seeds)}
        self._cache = SlotCache(0)

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache."""
        if not rows:
            return
        for finished in rows:
            del self._rows[finished]
        self._arrange([])

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
        self._join([row for row in rows if row.index < 0])
        active, logits = self._read(rows)  # logits (b, vocabulary)
        draws = np.stack([row.random.random(self.sampling.max_tokens) for row in active])
        uniforms = float64_tensor(draws, self.model.device)  # (b, max_tokens)
        wasted = 0  # tokens that closed rows were computed for
        for step in range(self.sampling.max_tokens):
            tokens, logprobs = sample_tokens(logits, uniforms[:, step], self.sampling)
            for row, token, logprob in zip(active, tokens.tolist(), logprobs.tolist(), strict=True):
                if row.open:
                    row.take(token, logprob, self._end)
            still_open = [row for row in active if row.open]
            if not still_open:
                break
            wasted += len(active) - len(still_open)
            if wasted >= self._pass_tokens or len(still_open) <= len(active) // 2:
                before = {id(row): place for place, row in enumerate(active)}
                (active,) = self._arrange(still_open)
                places = [before[id(row)] for row in active]
                tokens, uniforms, wasted = tokens[places], uniforms[places], 0
            logits = self._continue(active, tokens)
        return [Reply(self._decode(row.ids), tuple(row.ids), tuple(row.logprobs), cut=not row.ended) for row in rows]

    def _join(self, rows: Sequence[_Row]) -> None:
        """Give rows that begin their places in the cache."""
        if not rows:
            return
        for index, row in enumerate(rows, self._cache.num_rows):
            row.index = index
        self._cache.add_rows(len(rows))

    def _arrange(self, *groups: Sequence[_Row]) -> list[list[_Row]]:
        """Put these groups of rows first in the cache, one after the other, and drop rows that have left.

        Returns:
            Each group in the order of the cache. Rows that are among their group's places already stay there.
        """
        chosen = {row.index for group in groups for row in group}
        others = [row for row in self._rows.values() if row.index >= 0 and row.index not in chosen]
        arranged: list[list[_Row]] = []
        begin = 0
        for group in (*groups, others):
            places = range(begin, begin + len(group))
            staying = {row.index: row for row in group if row.index in places}
            moving = iter([row for row in group if row.index not in places])
            arranged.append([staying[place] if place in staying else next(moving) for place in places])
            begin = places.stop
        order = [row for group in arranged for row in group]
        if [row.index for row in order] != list(range(self._cache.num_rows)):
            self._cache.select([row.index for row in order])
        for index, row in enumerate(order):
            row.index = index
        return arranged[:-1]

    def _read(self, rows: list[_Row]) -> tuple[list[_Row], torch.Tensor]:
        """Feed each row's unfed tokens; returns the rows in the order of the cache, and their next logits."""
        leaders: dict[tuple[int, ...], _Row] = {}  # for each different context the row that reads for all rows with it
        for row in sorted(rows, key=lambda row: row.length, reverse=True):
            leaders.setdefault(row.context, row)
        readers = list(leaders.values())
        source_of = {id(row): leaders[row.context] for row in rows}
        followers = [row for row in rows if source_of[id(row)] is not row]
        self._read_beginnings([row for row in readers if not row.length])
        readers, logits = self._feed_all(readers, followers)
        followers = sorted(followers, key=lambda row: row.index)
        sources = [source_of[id(row)] for row in followers]
        self._share(sources, followers, max((row.length for row in sources), default=0))
        return [*readers, *followers], logits[[row.index for row in (*readers, *sources)]]

    def _read_beginnings(self, rows: Sequence[_Row]) -> None:
        """Feed once what several of these empty rows begin with; where a row of the cache begins so, copy it."""
        if not rows:
            return
        known = [row for row in self._rows.values() if row.length]
        found = common_beginnings([row.unfed for row in rows], [row.read for row in known], self._pass_tokens)
        first = {one: rows[one.new[0]] for one in found if one.known is None}
        rests = [row.unfed[one.length :] for one, row in first.items()]
        for one, row in first.items():
            row.unfed = row.unfed[: one.length]
        if first:
            self._feed_all(list(first.values()), [])
        for row, rest in zip(first.values(), rests, strict=True):
            row.unfed = rest
        for one in found:
            source = first[one] if one.known is None else known[one.known]
            targets = [rows[new] for new in one.new if rows[new] is not source]
            self._share([source] * len(targets), targets, one.length)

    def _share(self, sources: Sequence[_Row], targets: Sequence[_Row], length: int) -> None:
        """Copy the first ``length`` tokens at most of each source to its target, whose context begins with them."""
        if not targets:
            return
        self._cache.reserve(length)
        begin = min(row.length for row in targets)
        self._cache.copy([row.index for row in sources], [row.index for row in targets], slice(begin, length))
        for source, row in zip(sources, targets, strict=True):
            row.fed(min(length, source.length) - row.length)

    def _feed_all(self, rows: Sequence[_Row], others: Sequence[_Row]) -> tuple[list[_Row], torch.Tensor]:
        """Feed the unfed tokens of rows, in several passes if they must be, and put others behind them in the cache.

        Returns:
            The rows in the order of the cache, and their next logits, (b, vocabulary).
        """
        by_width = sorted(rows, key=lambda row: len(row.unfed), reverse=True)
        longest = max(row.length + len(row.unfed) for row in rows)
        most = most_tokens(longest)
        widths = [len(row.unfed) for row in by_width]
        passes = _passes(widths, most, most_rows(longest), self._pass_tokens)
        *groups, _ = self._arrange(*(by_width[span.start : span.stop] for span in passes), others)
        logits = [self._feed(group, most) for group in groups]
        return [row for group in groups for row in group], torch.cat(logits)

    def _feed(self, rows: list[_Row], most: int) -> torch.Tensor:
        """Feed the unfed tokens of rows that are neighbours in the cache; returns (b, vocabulary).

        A row with more than ``most`` tokens, which has no neighbours, is read in pieces of that length.
        """
        width = max(len(row.unfed) for row in rows)
        self._cache.reserve(max(row.length + len(row.unfed) for row in rows))
        ids, slots, positions = [], [], []
        for row in rows:
            padding = width - len(row.unfed)  # on the left, so that every row's last token is in the last column
            span = range(row.length, row.length + len(row.unfed))
            ids.append([0] * padding + row.unfed)
            slots.append([self._cache.spare_slot] * padding + list(span))
            positions.append([0] * padding + list(span))
            row.fed()
        piece = most if len(rows) == 1 else width
        for begin in range(0, width, piece):
            columns = slice(begin, begin + piece)
            read, places, known = ([each[columns] for each in lists] for lists in (ids, slots, positions))
            logits = self._forward(
                rows[0].index, self._tensor(read), places, known, 1 + max(each[-1] for each in known)
            )
        return logits

    def _continue(self, rows: list[_Row], tokens: torch.Tensor) -> torch.Tensor:
        """Feed the (b,) tokens just sampled to the first rows of the cache. Closed rows get padding instead."""
        self._cache.reserve(max(row.length for row in rows) + 1)
        slots = [[row.length if row.open else self._cache.spare_slot] for row in rows]
        positions = [[row.length if row.open else 0] for row in rows]
        for row in rows:
            if row.open:
                row.fed()
        return self._forward(0, tokens[:, None], slots, positions, self._cache.capacity)

    def _forward(
        self, first: int, ids: torch.Tensor, slots: list[list[int]], positions: list[list[int]], length: int
    ) -> torch.Tensor:
        """One pass over (b, n) tokens that attends to ``length`` slots; returns (b, vocabulary) logits of the last."""
        position = self._tensor(positions)  # (b, n)
        self._cache.place(first, self._tensor(slots), length)
        visible = torch.arange(length, device=position.device) <= position[:, None, :, None]  # (b, 1, n, length)
        with _heads_in_groups(ids):
            output = self.model(
                **self._inputs(first, ids, slots, position),
                attention_mask=mask_for(unwrapped(self.model), visible),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
                **without_router_logits(unwrapped(self.model)),
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _inputs(self, first: int, ids: torch.Tensor, slots: list[list[int]], position: torch.Tensor) -> dict[str, Any]:
        """What the model reads in a pass over (b, n) tokens of neighbours, of which the first is row ``first``."""
        return {"input_ids": ids, "position_ids": position}

    def _tensor(self, rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor(rows, device=self.model.device)


@contextmanager
def _heads_in_groups(ids: torch.Tensor) -> Iterator[None]:
    """Let several query heads read the same keys, where Transformers would copy all keys of its cache for each head.

    Transformers' switch for it is an environment variable. On the CPU the results are the same bits (a single token it
    does not copy for); a GPU's fast kernels take no groups together with a mask. A rollout in another thread leaves the
    variable alone: training would read it at any moment of its passes.
    """
    beside_training = threading.current_thread() is not threading.main_thread()
    if ids.device.type != "cpu" or ids.shape[1] == 1 or beside_training:
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
    return 32 if model.device.type == "cpu" and model.num_parameters() > _SMALL else 512


def _passes(widths: Sequence[int], tokens: int, rows: int, pass_tokens: int) -> list[range]:
    """The rows, widest first, that are read together.

    Cut where the others' padding would cost more than a pass (``pass_tokens``), and before a pass has more than
    ``tokens`` or ``rows``.
    """
    cuts = [0]
    for row in range(1, len(widths)):
        widest = widths[cuts[-1]]
        padding = (widest - widths[row]) * (len(widths) - row)
        if padding >= pass_tokens or row + 1 - cuts[-1] > min(rows, tokens // widest):
            cuts.append(row)
    return [range(*span) for span in pairwise([*cuts, len(widths)])]
