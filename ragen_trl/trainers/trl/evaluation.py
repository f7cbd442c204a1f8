"""TRL's evaluation during training, so every row counts once: what `adapter` is for the rest of TRL.

TRL averages the figures of batches without regard to their sizes, and a launch of several processes repeats rows to
fill up the last batch. Here `EvaluationTotals` collects the rows, and TRL logs what comes out. Relies on
``evaluation_loop`` calling ``prediction_step`` in the order of the rows, on that filling ``_metrics["eval"]``, of which
``evaluate`` logs the means, and on ``_eval_dataloaders``; held by ``test_trl_evaluation.py``.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from ragen_trl.batching.batch import sampled_mask
from ragen_trl.batching.loss_normalization import ROW_MEAN_LOSSES
from ragen_trl.trainers.trl.evaluation_totals import EvaluationTotals
from ragen_trl.trainers.trl.scoring import TRLScoring
from ragen_trl.trajectory import Trajectory


class TRLEvaluation(TRLScoring):
    """TRL's ``GRPOTrainer`` with an evaluation in which every row counts once."""

    _evaluated: EvaluationTotals | None = None  # while an evaluation runs

    def get_eval_dataloader(self, eval_dataset: str | Dataset | None = None) -> DataLoader[Any]:
        """As in TRL, but persistent workers never serve the rows of an earlier call."""
        vars(self).get("_eval_dataloaders", {}).pop("eval", None)
        loader: DataLoader[Any] = super().get_eval_dataloader(eval_dataset)
        return loader

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """As in TRL. Figures of a data set with a name get the name, as its loss does (``eval_name_success``)."""
        rows = len(dataloader.dataset) * self.num_generations_eval  # type: ignore[arg-type]
        self._evaluated = totals = EvaluationTotals(rows)
        try:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        finally:
            self._evaluated = None
        name = metric_key_prefix.removeprefix("eval_") + "_" if metric_key_prefix.startswith("eval_") else ""
        logged = self._metrics["eval"]
        logged.clear()
        scale = self.args.scale_rewards
        figures = totals.figures(self.reward_func_names, self.reward_weights, self.num_generations_eval, scale)
        for key, value in figures.items():
            logged[name + key].append(value)
        total, weight = self.accelerator.reduce(totals.loss.float().to(self.accelerator.device), "sum").tolist()
        output.metrics[f"{metric_key_prefix}_loss"] = total / weight if weight else 0.0
        return output

    def real_rows(self, rows: int) -> int:
        """How many of the first rows of this process's evaluation batch are not repeated."""
        totals = self._evaluated
        return rows if totals is None else totals.real(rows, self.accelerator.process_index)

    @property
    def rows_evaluated(self) -> int:
        """Rows of all processes before the present batch of an evaluation."""
        return 0 if self._evaluated is None else self._evaluated.seen

    def scores_later(self, played: Sequence[Trajectory]) -> bool:
        """Whether a batch is scored by us and not by TRL, which knows no filter and takes a trajectory for one row.

        So it is in training, and in an evaluation where any process had a context rebuilt; all call it together.
        """
        rebuilt = torch.tensor([any(len(one.segments) > 1 for one in played)], device=self.accelerator.device)
        return self.model.training or bool(self.accelerator.gather(rebuilt).any())

    def record_evaluated(self, sums: dict[str, float]) -> bool:
        """Add a batch's sums of `metrics.rollout_sums` to the evaluation; false if none runs."""
        if self._evaluated is not None:
            self._evaluated.add_played(sums)
        return self._evaluated is not None

    def _record_rewards(self, rewards: torch.Tensor) -> None:
        if self._evaluated is not None:
            self._evaluated.add_rewards(rewards)

    def _finish_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Add a batch that was played and scored to an evaluation that runs, and mask repeated rows in its loss."""
        totals = self._evaluated
        if totals is None:
            return batch
        ids, mask = batch["completion_ids"], batch["completion_mask"].clone()
        places = torch.arange(len(ids), device=ids.device)
        used, owners = mask.any(dim=1), batch.get("trajectory", places)
        count = int(owners.max()) + 1
        firsts = places.new_zeros(count).scatter_reduce(0, owners, places, "amin", include_self=False)
        finals = firsts.scatter_reduce(0, owners[used], places[used], "amax")  # each trajectory's last row
        real = self.real_rows(count)
        last = ids.gather(1, mask.sum(dim=1, keepdim=True).sub(1).clamp(min=0)).squeeze(1)[finals]
        ends = torch.tensor([*self.eos_token_ids, self._tokenizer.pad_token_id], device=ids.device)
        lengths = places.new_zeros(count).index_add(0, owners, sampled_mask(batch).sum(dim=1))
        ended, rows = torch.isin(last, ends), min(count * self.accelerator.num_processes, totals.rows - totals.seen)
        totals.add_batch(self._drained(), rows)
        totals.add_lengths(self.accelerator.gather(lengths), self.accelerator.gather(ended))
        mask[owners >= real] = 0
        tokens = lengths[:real].sum() * self.accelerator.num_processes  # TRL divides it by the processes
        return {**batch, "completion_mask": mask, "num_items_in_batch": tokens, "real_rows": real}

    def _record_loss(self, loss: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        if self._evaluated is not None:
            tokens = sampled_mask(inputs).sum()
            self._evaluated.add_batch(self._drained(), self.accelerator.reduce(tokens, "sum").item())
            if self.loss_type in ROW_MEAN_LOSSES:
                counted, weight = len(inputs["completion_ids"]), inputs["real_rows"]
            else:
                counted = weight = int(tokens.item())
            self._evaluated.add_loss(loss.item(), counted, weight)
        return loss

    def _drained(self) -> dict[str, float]:
        """What TRL logged of this batch and has not averaged yet."""
        logged = self._metrics["eval"]
        figures = {name: fmean(values) for name, values in logged.items() if values}
        logged.clear()
        return figures
