"""One forward pass over many rows, in which tokens that rows begin with in common are computed once.

Rows are stored as a prefix tree in the order of a depth-first walk: place k is visible from place q if k ≤ q ≤
``last[k]``, the last place of k's subtree, and keeps the position that its token has in its rows. So the model computes
for every row what it computes for the row alone, up to rounding, and gradients add up. Attention masks all pairs of
places, so rows are cut into several trees where that is cheaper. The head reads only the places that predict a scored
token; the other tokens get 0. The model must take a mask of (N, 1, L, L) and a position per token.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from os.path import commonprefix
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ragen_trl.policies.model_calls import additive_mask, without_router_logits

# Attention over L places costs as much as L · ATTENTION_COST / hidden size passes over the weights of the same layer:
# counted operations would give 1/6, but masked attention reaches about a third of the speed of matrix products.
ATTENTION_COST = 0.5
_CUTS = 64  # of rows into trees, which are compared


@dataclass(frozen=True)
class PackedRows:
    """B rows of S columns, stored as N trees of at most L places.

    Attributes:
        ids: (N, L) token ids; 0 at padding after a tree's end.
        positions: (N, L) the position of each token in its rows.
        last: (N, L) the last place of each place's subtree; a place of padding has only itself.
        predictors: (K,) places, as indices of N · L, whose next token is scored.
        labels: (K,) these next tokens; the K pairs are different.
        index: (B, S) which of the K pairs scores a token; K where it is not scored.
        branches: Whether a tree holds more than one row, so attention needs a mask.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    last: torch.Tensor
    predictors: torch.Tensor
    labels: torch.Tensor
    index: torch.Tensor
    branches: bool

    @property
    def visible(self) -> torch.Tensor:
        """(N, 1, L, L) bool: whether the place of the last axis is read at the place of the one before it."""
        place = torch.arange(self.ids.shape[1], device=self.ids.device)
        upto = place <= place[:, None]  # (L, L): k ≤ q
        return (upto & (place[:, None] <= self.last[:, None, :]))[:, None]

    def unpacked(self, values: torch.Tensor) -> torch.Tensor:
        """(B, S) the values of (K,) pairs at the tokens that they score; 0 elsewhere."""
        return torch.cat([values, values.new_zeros(1)])[self.index]


def share_prefixes(ids: torch.Tensor, attention: torch.Tensor, scored: torch.Tensor, hidden_size: int) -> PackedRows:
    """Store rows as prefix trees.

    ``ids``, ``attention`` (0 at padding, on either side) and ``scored`` (whether a token's log-probability is asked
    for) are (B, S). A row is stored up to the token before its last scored one, and a row without any is not stored.
    The model's ``hidden_size`` decides how many trees are made.
    """
    tokens, used, wanted = (tensor.cpu().numpy() for tensor in (ids, attention.bool(), scored.bool()))
    columns = [np.flatnonzero(row) for row in used]  # the columns of a row's tokens
    asked = [np.flatnonzero(row[places][1:]) + 1 for row, places in zip(wanted, columns, strict=True)]  # among these
    texts = [
        row[places[: which[-1]]] if len(which) else row[:0]
        for row, places, which in zip(tokens, columns, asked, strict=True)
    ]
    order = [row for row in _sorted(texts) if len(texts[row])]
    if not order:  # filler: any one token makes a graph whose gradients are 0
        zero = ids.new_zeros((1, 1))
        return PackedRows(zero, zero, zero, zero[0], zero[0], torch.ones_like(ids), branches=False)
    sorted_texts = [texts[row] for row in order]
    shared = [0, *(len(commonprefix(pair)) for pair in pairwise(text.tolist() for text in sorted_texts))]
    lengths = [len(text) for text in sorted_texts]
    trees = [
        _tree(sorted_texts[span.start : span.stop], [0, *shared[span.start + 1 : span.stop]])
        for span in _cheapest_trees(lengths, shared, hidden_size)
    ]
    longest = max(places.shape[1] for places, _ in trees)
    column = np.tile(np.arange(longest), (len(trees), 1))  # padding goes on counting: a reset would mean a new sequence
    stored, paths = np.stack([np.zeros_like(column), column, column]), []
    for number, (places, of_rows) in enumerate(trees):
        stored[:, number, : places.shape[1]] = places
        paths += [path + number * longest for path in of_rows]  # of sorted rows, as indices of N · L
    before = np.concatenate([path[asked[row] - 1] for row, path in zip(order, paths, strict=True)])
    after = np.concatenate([tokens[row, columns[row][asked[row]]] for row in order])
    pairs, inverse = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
    index = np.full(tokens.shape, pairs.shape[1])
    rows = np.concatenate([np.full(len(asked[row]), row) for row in order])
    index[rows, np.concatenate([columns[row][asked[row]] for row in order])] = inverse
    tree_ids, positions, last, predictors, labels, scores = (
        torch.from_numpy(each).to(ids.device) for each in (*stored, *pairs, index)
    )
    branches = any(len(of_rows) > 1 for _, of_rows in trees)
    return PackedRows(tree_ids, positions, last, predictors, labels, scores, branches)


def pass_order(ids: torch.Tensor, attention: torch.Tensor, shares_prefixes: bool) -> torch.Tensor:
    """(B,) indices of (B, S) rows, ordered so rows of one pass have little padding or, shared, begin alike.

    That is by length, or each next to the row with which it has the longest common beginning; empty rows come first.
    """
    if not shares_prefixes:
        return attention.sum(dim=1).argsort(stable=True)
    rows, used = ids.cpu().numpy(), attention.bool().cpu().numpy()
    return torch.tensor(_sorted([row[places] for row, places in zip(rows, used, strict=True)]), device=ids.device)


def _sorted(rows: Sequence[NDArray[np.int64]]) -> list[int]:
    lists = [row.tolist() for row in rows]
    return sorted(range(len(lists)), key=lists.__getitem__)


def _cheapest_trees(lengths: Sequence[int], shared: Sequence[int], hidden_size: int) -> list[range]:
    """How sorted rows are cut into trees of neighbours, which are padded to the longest: the cheapest of some cuts.

    ``shared`` says how many of its tokens a row has in common with the row before it.
    """
    own = [0, *(length - common for length, common in zip(lengths[1:], shared[1:], strict=True))]
    ends = np.cumsum(own).tolist()

    def cost(spans: list[range]) -> float:
        longest = max(lengths[span.start] + ends[span.stop - 1] - ends[span.start] for span in spans)
        return len(spans) * longest * (1 + ATTENTION_COST * longest / hidden_size)

    limits = np.linspace(max(lengths), lengths[0] + ends[-1], _CUTS, dtype=int)
    return min((_filled(lengths, ends, int(limit)) for limit in limits), key=cost)


def _filled(lengths: Sequence[int], ends: Sequence[int], limit: int) -> list[range]:
    """The fewest trees of neighbours of at most ``limit`` places; ``ends``: of one tree, after each row."""
    spans, start = [], 0
    while start < len(lengths):
        stop = bisect_right(ends, limit - lengths[start] + ends[start], lo=start + 1)
        spans.append(range(start, stop))
        start = stop
    return spans


def _tree(
    rows: Sequence[NDArray[np.int64]], shared: Sequence[int]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """The prefix tree of sorted rows; each has ``shared`` tokens in common with the row before it.

    Returned are (3, places) its ids, positions and last places, and the places of each row's tokens.
    """
    starts = np.cumsum([0, *(len(row) - common for row, common in zip(rows, shared, strict=True))])
    paths: list[NDArray[np.int64]] = []
    for row, common, start in zip(rows, shared, starts, strict=False):
        path = np.arange(start - common, start - common + len(row))
        if common:
            path[:common] = paths[-1][:common]
        paths.append(path)
    # A subtree ends before the next row that leaves the path at or above its depth.
    last = np.empty(starts[-1], dtype=np.int64)
    end = np.full(max(len(row) for row in rows), starts[-1] - 1)  # for each depth
    for row, common, start in zip(reversed(rows), reversed(shared), reversed(starts[:-1]), strict=True):
        last[start : start + len(row) - common] = end[common : len(row)]
        end[common:] = start - 1
    ids = np.concatenate([row[common:] for row, common in zip(rows, shared, strict=True)])
    positions = np.concatenate([np.arange(common, len(row)) for row, common in zip(rows, shared, strict=True)])
    return np.stack([ids, positions, last]), paths


class PackedModel:
    """A model to call instead of one with TRL's fused head, which packs the rows that it is given.

    ``model`` is called, perhaps wrapped by a launcher; ``base`` is the same without wrappers and adapters. Of the
    tokens with a label only the (B, S) ``sampled`` ones are scored, if given.
    """

    def __init__(self, model: Callable[..., Any], base: Any, sampled: torch.Tensor | None = None) -> None:
        self._model, self._base, self._sampled = model, base, sampled

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **options: Any
    ) -> SimpleNamespace:
        """Score the tokens that have a label other than -100; all tensors are (B, S), padded on either side.

        Returned is what TRL reads of a fused head's output, (B, S - 1), where column t is about token t + 1:
        log-probabilities and entropies in nats, 0 at tokens that are not scored.
        """
        scored = labels != -100
        scored[:, 0] = False
        if self._sampled is not None:
            scored &= self._sampled.bool()
        config = self._base.config.get_text_config()
        rows = share_prefixes(input_ids, attention_mask, scored, config.hidden_size)
        with _only_predictors(self._base.base_model, rows.predictors):
            found = self._model(
                input_ids=rows.ids,
                attention_mask=additive_mask(self._base, rows.visible) if rows.branches else None,
                position_ids=rows.positions,
                shift_labels=rows.labels[None],
                **without_router_logits(self._base),
                **options,
            )
        log_probs, entropy, is_top1 = (
            None if value is None else rows.unpacked(value[0])[:, 1:]
            for value in (found.log_probs, found.entropy, found.is_top1)
        )
        # A mixture of experts with a load-balancing loss is not packed.
        return SimpleNamespace(
            log_probs=log_probs, entropy=entropy, is_top1=is_top1, label_mask=scored[:, 1:], aux_loss=None
        )


@contextmanager
def _only_predictors(backbone: nn.Module, predictors: torch.Tensor) -> Iterator[None]:
    """Keep the backbone's last hidden states, (1, K, H), of these places only, so the head reads no other."""

    def choose(module: nn.Module, inputs: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[predictors][None]
        return output

    handle = backbone.register_forward_hook(choose)
    try:
        yield
    finally:
        handle.remove()
