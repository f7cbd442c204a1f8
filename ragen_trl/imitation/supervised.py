"""TRL's ``SFTTrainer`` with rows stored as prefix trees, for the warm start.

All demonstrations of an environment begin with its instruction, and only replies are learnt, so most of what TRL would
compute is the same in every row or not asked for. Relies on ``compute_loss`` calling the model once, with
``fused_lm_head=True``, and reading ``log_probs``, ``entropy``, ``is_top1`` and ``label_mask``; held by
``test_fine_tuning.py``.
"""

from typing import Any

import torch
from trl import SFTTrainer

from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.training.scoring import can_share_prefixes, without_wrappers


class PackedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's ``SFTTrainer``; a model that cannot be packed is trained as TRL does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shares_prefixes = can_share_prefixes(self, self.aux_loss_enabled)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> torch.Tensor:
        """As in TRL."""
        if self._shares_prefixes:
            model = PackedModel(model, without_wrappers(self, model))
        loss: torch.Tensor = super().compute_loss(model, inputs, *args, **options)
        return loss
