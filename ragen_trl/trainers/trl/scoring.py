"""TRL's log-probabilities of completion tokens, with rows stored as prefix trees, for every algorithm.

Relies, held by contract tests, on ``_get_per_token_logps_and_entropies``, which calls the model once with
``fused_lm_head=True`` and reads ``log_probs``, ``entropy`` and ``aux_loss`` of what it returns; on ``shift_labels``,
with which the fused head scores every hidden state; and on ``ref_model`` or the adapter "ref" for the KL term.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel, Trainer
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from ragen_trl.batching.batch import sampled_mask, whole_rows
from ragen_trl.batching.micro_batches import score_in_passes
from ragen_trl.batching.pictures import picture_inputs
from ragen_trl.batching.shared_prefixes import PackedModel, PackedRows, prefix_order, share_prefixes
from ragen_trl.policies.model_calls import unwrapped, with_positions
from ragen_trl.policies.model_support import FAMILIES, UnsupportedModelError, check_supported
from ragen_trl.policies.vision.processing import PictureProcessor
from ragen_trl.trainers.reference import Reference
from ragen_trl.trainers.trl.loss_inputs import LossInputs
from ragen_trl.trajectory import Picture

logger = logging.getLogger(__name__)

Pictures: TypeAlias = Sequence[Sequence[Picture]]
"""The pictures of each row."""


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


class Scores(NamedTuple):
    """A model's log-probabilities and, if asked for, entropies of completion tokens, both (B, T) in nats."""

    logprobs: torch.Tensor
    entropies: torch.Tensor | None


class TRLScoring(GRPOTrainer):  # type: ignore[misc]
    """TRL's ``GRPOTrainer`` with public names for scoring.

    Attributes:
        pictures: Makes patches of pictures, for a vision model; set before TRL's own `__init__`.
        shares_prefixes: Whether rows are stored as prefix trees.
    """

    pictures: PictureProcessor | None = None

    def __init__(self, **options: Any) -> None:
        self._recordings: list[list[Scores]] = []
        self._loss_inputs: LossInputs | None = None  # while TRL calculates a loss
        self._postpones_scores = False  # while TRL builds a training batch
        self._pictures_shown: Pictures | None = None  # while TRL builds a batch: those of its rows
        super().__init__(**options)
        self.shares_prefixes = self._can_share_prefixes()
        # TRL has no reference where β is 0.
        self._beginning = Reference(self.accelerator.unwrap_model(self.model)) if self.args.log_kl else None

    def _can_share_prefixes(self) -> bool:
        return can_share_prefixes(self, self.aux_loss_enabled)

    @property
    def rows_of_loss(self) -> int | None:
        """Rows in a pass of an evaluation's loss: rebuilt contexts may make many; in training a micro-batch is one."""
        return None if self.model.training else self.args.per_device_eval_batch_size

    def packed_rows(self, inputs: dict[str, Any]) -> PackedRows:
        """How the rows of a micro-batch are stored as prefix trees."""
        ids, attention = whole_rows(inputs)
        scored = torch.cat([torch.zeros_like(inputs["prompt_mask"]), sampled_mask(inputs)], dim=1)
        return share_prefixes(ids, attention, scored, self.model.config.get_text_config().hidden_size)

    @contextmanager
    def recorded_scores(self) -> Iterator[list[Scores]]:
        """All scores of models in this block, in order, whether TRL's loss or `score` asks; complete at its end."""
        recording: list[Scores] = []
        self._recordings.append(recording)
        try:
            yield recording
        finally:
            self._recordings.remove(recording)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        if self._postpones_scores:
            return torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device), None, None
        if batch_size is None and not options.get("compute_aux_loss"):  # a router's loss is a mean over one pass
            batch_size = self.rows_of_loss
        sampled, pictures = None, self._pictures_shown
        if self._loss_inputs is not None:
            sampled, pictures = self._loss_inputs.sampled, self._loss_inputs.columns.get("pictures")
        result = self._score_rows(
            model, input_ids, attention_mask, logits_to_keep, sampled, batch_size, pictures, **options
        )
        return result if self._loss_inputs is None else (self._loss_inputs.scored(result[0]), *result[1:])

    def _score_rows(
        self,
        model: Any,
        ids: torch.Tensor,
        attention: torch.Tensor,
        width: int,
        sampled: torch.Tensor | None,
        batch_size: int | None,
        pictures: "Pictures | None",
        **options: Any,
    ) -> Any:
        """TRL's scores of the last ``width`` columns: (B, T) log-probabilities and entropies, and a router's loss.

        Where rows are stored as prefix trees, only the (B, T) ``sampled`` tokens are scored. With ``pictures``, those
        of each row, the model gets their pixels and finds the positions itself.
        """
        trl_score = super()._get_per_token_logps_and_entropies
        base = without_wrappers(self, model)
        shares = self.shares_prefixes
        asked = attention.clone()
        if sampled is not None:
            asked[:, -width:] *= sampled

        def score(rows: Any, columns: slice, kept: int) -> Any:
            part, tokens = attention[rows, columns], ids[rows, columns]
            seen: dict[str, Any] = {}
            if pictures is not None:
                assert self.pictures is not None
                shown = [pictures[row] for row in torch.arange(len(ids))[rows].tolist()]
                call, (tokens, seen) = model, picture_inputs(tokens, part, shown, self.pictures)
            elif shares:
                call = PackedModel(model, base, asked[rows, columns])
            else:
                call = with_positions(model, base, part)
            logprobs, entropies, router_loss = trl_score(call, tokens, part, kept, **{**options, **seen})
            others = asked[rows, columns][:, -kept:] == 0
            entropies = None if entropies is None else entropies.masked_fill(others, 0.0)
            return logprobs.masked_fill(others, 0.0), entropies, router_loss

        if batch_size is None or batch_size >= len(ids):
            result = score(slice(None), slice(None), width)
        else:  # a whole rollout, which needs no mixture-of-experts loss
            order = prefix_order(ids, attention) if shares else torch.argsort(attention.sum(dim=1), stable=True)
            result = (*score_in_passes(lambda *part: score(*part)[:2], attention, width, order.split(batch_size)), None)
        for recording in self._recordings:
            recording.append(Scores(result[0].detach(), result[1]))
        return result

    def score(
        self, model: PreTrainedModel, inputs: dict[str, Any], batch_size: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (nats) of the completion tokens, both (B, T), for your own losses.

        They are 0 at tokens that the policy did not sample, since these are not computed where rows share prefixes.
        Score the policy last in a micro-batch: the logged values come from the last call.

        Args:
            model: The policy, or the policy as its reference.
            inputs: TRL's tensors of a micro-batch, or of a whole rollout.
            batch_size: Rows in one forward pass; unset: all.
        """
        scores = self._scored(model, inputs, batch_size, compute_entropy=True)
        assert scores.entropies is not None
        return scores.logprobs, scores.entropies

    def score_reference(self, inputs: dict[str, Any], batch_size: int) -> torch.Tensor:
        """(B, T) log-probabilities of the completion tokens under the reference of TRL's KL term, or of ``log_kl``."""
        if self._beginning is not None:
            with self._beginning.model() as model:
                return self._scored(model, inputs, batch_size, compute_entropy=False).logprobs
        if self.ref_model is not None:  # TRL gives it a head without entropies
            return self._scored(self.ref_model, inputs, batch_size, compute_entropy=False).logprobs
        policy = self.accelerator.unwrap_model(self.model)
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            return self._scored(self.model, inputs, batch_size, compute_entropy=False).logprobs

    def _scored(self, model: Any, inputs: dict[str, Any], batch_size: int | None, compute_entropy: bool) -> Scores:
        ids, attention = whole_rows(inputs)
        width = inputs["completion_ids"].shape[1]
        sampled, pictures = inputs.get("tool_mask"), inputs.get("pictures")
        entropy = {"compute_entropy": compute_entropy}
        scored = self._score_rows(model, ids, attention, width, sampled, batch_size, pictures, **entropy)
        return Scores(scored[0], scored[1])
