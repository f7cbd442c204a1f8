"""Log-probabilities of the tokens that a policy sampled, with what rows begin with in common computed once."""

import logging
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from accelerate.utils import DynamoBackend
from torch.nn.functional import pad
from transformers import PreTrainedModel, Trainer

from ragen_trl.batching.batch import chosen_rows, cut_to_longest, scored_mask, whole_rows
from ragen_trl.batching.shared_prefixes import PackedModel, pass_order
from ragen_trl.policies.model_calls import unwrapped, with_positions
from ragen_trl.policies.models import FAMILIES, UnsupportedModelError, check_supported
from ragen_trl.policies.vision import PictureProcessor
from ragen_trl.trl_seams import token_scores

logger = logging.getLogger(__name__)

_READ = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "pictures")


class Scores(NamedTuple):
    """A model's log-probabilities and, if asked for, entropies of completion tokens, both (B, T) in nats.

    Both are 0 at tokens that neither the policy sampled nor an oracle wrote. ``router_loss`` is a mixture's
    load-balancing loss.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor | None
    router_loss: torch.Tensor | None


class Scorer:
    """Scores the rows of a trainer's batches; in as few positions as the model allows.

    Attributes:
        shares_prefixes: Whether rows are stored as prefix trees.
    """

    def __init__(self, trainer: Any, pictures: PictureProcessor | None) -> None:
        # The trainer holds this object. Held in turn it would outlive its last user until the next garbage collection,
        # with the model's memory, and with DeepSpeed's ZeRO-3, which changes how the next model is loaded.
        self._trainer, self._pictures = weakref.proxy(trainer), pictures
        self.shares_prefixes = can_share_prefixes(trainer, trainer.aux_loss_enabled)

    def __call__(
        self,
        model: Any,
        batch: Mapping[str, Any],
        rows_a_pass: int | None = None,
        entropies: bool = True,
        router_loss: bool = False,
    ) -> Scores:
        """Score the tokens of `scored_mask` of a batch under a model, in one pass or in passes of so many rows."""
        count, width = batch["completion_ids"].shape
        if rows_a_pass is None or rows_a_pass >= count:
            return self._one_pass(model, batch, entropies, router_loss)
        order = pass_order(*whole_rows(batch), self.shares_prefixes)
        passes = []
        for rows in order.split(rows_a_pass):  # none wider than its longest row
            part = cut_to_longest({name: chosen_rows(batch[name], rows) for name in _READ if name in batch})
            found = self._one_pass(model, part, entropies)
            passes.append([pad(one, (0, width - one.shape[1])) for one in found[:2] if one is not None])
        logprobs, *spreads = (torch.cat(columns)[order.argsort()] for columns in zip(*passes, strict=True))
        return Scores(logprobs, spreads[0] if spreads else None, None)

    def _one_pass(self, model: Any, batch: Mapping[str, Any], entropies: bool, router_loss: bool = False) -> Scores:
        ids, attention = whole_rows(batch)
        scored, base = scored_mask(batch), without_wrappers(self._trainer, model)
        options: dict[str, Any] = {"compute_entropy": entropies}
        if router_loss:
            options["compute_aux_loss"] = True
        if "pictures" in batch:  # a model that sees finds the positions itself
            assert self._pictures is not None
            call, (ids, seen) = model, self._pictures.inputs(ids, attention, batch["pictures"])
            options |= seen
        elif self.shares_prefixes:
            call = PackedModel(model, base, torch.cat([batch["prompt_mask"], scored], dim=1))
        else:
            call = with_positions(model, base, attention)
        logprobs, spread, router = token_scores(self._trainer, call, ids, attention, scored.shape[1], **options)
        spread = None if spread is None else spread.masked_fill(~scored, 0.0)
        return Scores(logprobs.masked_fill(~scored, 0.0), spread, router)


def can_share_prefixes(trainer: Trainer, with_router_loss: bool) -> bool:
    """Whether the rows of a trainer's model can be stored as prefix trees; why not, is logged."""
    reason = "a router's loss reads every token of every row" if with_router_loss else ""
    if without_wrappers(trainer, trainer.model).config.model_type in FAMILIES:
        reason = "tokens of pictures are equal where the pictures are not"
    try:
        check_supported(trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False))
    except UnsupportedModelError as error:
        reason = str(error)
    if trainer.args.torch_compile or trainer.accelerator.state.dynamo_plugin.backend != DynamoBackend.NO:
        reason = "a compiled model's head reads a fixed number of tokens"
    if reason:
        logger.warning("what rows begin with in common is computed for each of them: %s", reason)
    return not reason


def without_wrappers(trainer: Trainer, model: Any) -> PreTrainedModel:
    """The model inside launchers, compilers and adapters, whose class says what it takes."""
    return unwrapped(trainer.accelerator.unwrap_model(model, keep_torch_compile=False))
