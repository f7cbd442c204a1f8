"""Replies from the model in training: a Transformers model with a kept KV cache.

The model reads each token once. Contexts stay in a ``SlotCache`` between turns, new observations are appended, and
finished episodes leave. Rows whose contexts are equal are computed once (`shared_contexts`), rows that begin alike
share the pass over what they have in common (`shared_reading`). Every row draws from its own random stream, so a reply
does not depend on which other rows share its batch. Many long prompts are read in several passes, a very long one in
pieces.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ragen_trl.policies.model_calls import (
    beside_training,
    cache_name,
    lora_merged,
    mask_for,
    unwrapped,
    weights_cast_once,
    without_router_logits,
)
from ragen_trl.policies.model_support import check_supported, context_length
from ragen_trl.policies.sampling import Sampling, check_drawn, sample_tokens
from ragen_trl.policies.shared_contexts import Context, Row, SharedContexts
from ragen_trl.policies.shared_reading import common_beginnings
from ragen_trl.policies.stopping import ReplyEnd
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.float64 import float64_tensor
from ragen_trl.system.heap import return_free_memory
from ragen_trl.system.precision import LARGE

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_GROUPS = "TRANSFORMERS_SDPA_FORCE_GQA"
# Bounds of one pass that reads prompts: tokens with their padding; numbers of the attention mask, which has a row of
# slots for each token; and slots of all rows, which attention copies where several heads share their keys.
MOST_TOKENS = 4096
MOST_OF_A_MASK = 8192 * MOST_TOKENS
MOST_SLOTS = 32 * MOST_TOKENS


class TransformersPolicy(Policy):
    """Samples replies from a causal language model. `stopping.ReplyEnd` says what ends a reply.

    Args:
        model: The model. Its mode (train or eval) is restored after each call.
        chat: Decodes replies and knows the end-of-turn token.
        sampling: How tokens are drawn.
        autocast: Makes the context in which the model runs, so it computes in the trainer's precision.
        merge_lora: Whether replies are sampled with LoRA merged into the weights.

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
        self._shared = SharedContexts()

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed."""
        self._shared = SharedContexts(seeds)

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache. After the last one free memory goes back to the system."""
        if rows:
            self._shared.leave(rows)
            if not self._shared.rows and self.model.device.type == "cpu":
                return_free_memory()

    @torch.no_grad()
    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Append each request's tokens to its row and sample a reply.

        Raises:
            NotFiniteError: If the logits of a token are NaN or infinite.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            with self._merged(self.model), self._autocast(), weights_cast_once(self.model):
                return self._reply(requests)
        finally:
            self.model.train(was_training)

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        if not requests:
            return []
        rows = [self._shared.rows[request.row] for request in requests]
        for row, request in zip(rows, requests, strict=True):
            row.begin_turn(request, self.sampling.max_tokens)
        active, logits = self._read(rows)  # logits (c, vocabulary), a row for each context
        wasted = 0  # tokens that contexts without rows were computed for
        while True:
            self._sample(active, logits)
            active = self._shared.branched(active)
            alive = [context for context in active if context.rows]
            if not alive:
                break
            wasted += len(active) - len(alive)
            if wasted >= self._pass_tokens or len(alive) <= len(active) // 2:
                (active,), wasted = self._shared.arrange(alive), 0
            logits = self._continue(active)
        return [Reply(self._decode(row.ids), tuple(row.ids), tuple(row.logprobs), cut=not row.ended) for row in rows]

    def _sample(self, contexts: Sequence[Context], logits: torch.Tensor) -> None:
        """Draw the next token of every row from the logits of its context, (c, vocabulary)."""
        draws = np.zeros((len(contexts), max(len(context.rows) for context in contexts)))
        used = np.zeros(draws.shape, dtype=bool)
        for place, context in enumerate(contexts):
            draws[place, : len(context.rows)] = [row.draws[len(row.ids)] for row in context.rows]
            used[place, : len(context.rows)] = True
        drawn = sample_tokens(logits, float64_tensor(draws, self.model.device), self.sampling)  # (c, most) each
        tokens, logprobs = (each[torch.from_numpy(used).to(each.device)].tolist() for each in drawn)
        check_drawn(logprobs)
        rows = (row for context in contexts for row in context.rows)
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            row.append(token, logprob, self._end)

    def _read(self, rows: Sequence[Row]) -> tuple[list[Context], torch.Tensor]:
        """Feed each row's unfed tokens; returns the different contexts in the cache's order, and their next logits."""
        readers = self._shared.assign_contexts(rows)
        self._read_beginnings([context for context in readers if not context.length])
        return self._feed_all(readers)

    def _read_beginnings(self, contexts: Sequence[Context]) -> None:
        """Feed once what several of these empty contexts begin with; where one in the cache begins so, copy it."""
        if not contexts:
            return
        known = [context for context in self._shared.contexts if context.length]
        unfed, read = [context.unfed for context in contexts], [context.read for context in known]
        found = common_beginnings(unfed, read, self._pass_tokens)
        first = {one: contexts[one.new[0]] for one in found if one.known is None}
        rests = [context.unfed[one.length :] for one, context in first.items()]
        for one, context in first.items():
            context.unfed = context.unfed[: one.length]
        if first:
            self._feed_all(list(first.values()))
        for context, rest in zip(first.values(), rests, strict=True):
            context.unfed = rest
        for one in found:
            source = first[one] if one.known is None else known[one.known]
            targets = [contexts[new] for new in one.new if contexts[new] is not source]
            places = [target.index for target in targets]
            self._shared.cache.copy([source.index] * len(places), places, slice(0, one.length))
            for target in targets:
                target.mark_read(one.length)

    def _feed_all(self, contexts: Sequence[Context]) -> tuple[list[Context], torch.Tensor]:
        """Feed the unfed tokens of contexts, in several passes if they must be, and put these last in the cache.

        Returns the contexts in the order of the cache, and their next logits, (c, vocabulary).
        """
        by_width = sorted(contexts, key=lambda context: len(context.unfed), reverse=True)
        longest = max(context.length + len(context.unfed) for context in contexts)
        most = most_tokens(longest)
        widths = [len(context.unfed) for context in by_width]
        passes = _passes(widths, most, most_rows(longest), self._pass_tokens)
        groups = self._shared.arrange(*(by_width[span.start : span.stop] for span in passes))
        logits = [self._feed(group, most) for group in groups]
        return [context for group in groups for context in group], torch.cat(logits)

    def _feed(self, contexts: list[Context], most: int) -> torch.Tensor:
        """Feed the unfed tokens of contexts that are neighbours in the cache; returns (c, vocabulary).

        A context with more than ``most`` tokens, which has no neighbours, is read in pieces of that length.
        """
        width = max(len(context.unfed) for context in contexts)
        self._shared.cache.reserve(max(context.length + len(context.unfed) for context in contexts))
        ids, slots, positions = [], [], []
        for context in contexts:
            padding = width - len(context.unfed)  # on the left, so that each last token is in the last column
            span = range(context.length, context.length + len(context.unfed))
            ids.append([0] * padding + context.unfed)
            slots.append([self._shared.cache.spare_slot] * padding + list(span))
            positions.append([0] * padding + list(span))
            context.mark_read()
        piece = most if len(contexts) == 1 else width
        for begin in range(0, width, piece):
            columns = slice(begin, begin + piece)
            read, places, known = ([each[columns] for each in lists] for lists in (ids, slots, positions))
            logits = self._forward(contexts[0].index, read, places, known, 1 + max(each[-1] for each in known))
        return logits

    def _continue(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Feed the tokens just sampled to the last contexts of the cache. One without rows gets padding instead."""
        self._shared.cache.reserve(max(context.length for context in contexts) + 1)
        ids = [context.unfed or [0] for context in contexts]
        slots = [[context.length if context.unfed else self._shared.cache.spare_slot] for context in contexts]
        positions = [[context.length if context.unfed else 0] for context in contexts]
        for context in contexts:
            context.mark_read()
        return self._forward(contexts[0].index, ids, slots, positions, self._shared.cache.capacity)

    def _forward(
        self, first: int, ids: list[list[int]], slots: list[list[int]], positions: list[list[int]], length: int
    ) -> torch.Tensor:
        """One pass over (c, n) tokens that attends to ``length`` slots; returns (c, vocabulary) logits of the last."""
        tokens, position = self._tensor(ids), self._tensor(positions)  # (c, n)
        self._shared.cache.place(first, self._tensor(slots), length)
        visible = torch.arange(length, device=position.device) <= position[:, None, :, None]  # (c, 1, n, length)
        with _heads_in_groups(tokens):
            output = self.model(
                **self._inputs(first, tokens, slots, position),
                attention_mask=mask_for(unwrapped(self.model), visible),
                **{self._cache_name: self._shared.cache},
                use_cache=True,
                logits_to_keep=1,
                **without_router_logits(unwrapped(self.model)),
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _inputs(self, first: int, ids: torch.Tensor, slots: list[list[int]], position: torch.Tensor) -> dict[str, Any]:
        """What the model reads in a pass over (c, n) tokens of neighbours in the cache, from place ``first`` on."""
        return {"input_ids": ids, "position_ids": position}

    def _tensor(self, rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor(rows, device=self.model.device)


@contextmanager
def _heads_in_groups(ids: torch.Tensor) -> Iterator[None]:
    """Let several query heads read the same keys, where Transformers would copy all keys of its cache for each head.

    Transformers' switch for it is an environment variable. On the CPU the results are the same bits; a GPU's fast
    kernels take no groups together with a mask. A rollout in another thread leaves the variable alone, since training
    reads it.
    """
    if ids.device.type != "cpu" or ids.shape[1] == 1 or beside_training():
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
