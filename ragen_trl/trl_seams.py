"""Every private member of TRL that this package uses, and what it relies on; each has a contract test.

| member of ``GRPOTrainer`` | what is relied on |
|---|---|
| ``_prepare_inputs`` | called once for each micro-batch, with the rows of a rollout; `StarPOTrainer` overrides it |
| ``_get_per_token_logps_and_entropies`` | calls the model, and returns log-probabilities, entropies, a router's loss |
| ``_calculate_rewards`` | returns the rewards of all processes, (B, F), NaN where a function gave none |
| ``_pending_metrics``, ``_pending_extra_logs`` | what reward functions logged since they were emptied |
| ``_metrics`` | ``log`` writes the means of these lists by mode and empties them |
| ``_logs`` | the table of a plain ``GRPOTrainer``'s last completions, for `CollapseMonitor` |
| ``_buffered_inputs`` | its micro-batches of the last rollout |

TRL has a new minor version every one to two weeks. A version that was not tested works where none of these has moved;
`check_seams` says which one has.
"""

import inspect
from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

import torch
import transformers
import trl
from accelerate.utils import gather_object
from transformers import Trainer
from trl import GRPOTrainer

from ragen_trl.errors import UserError

TESTED = ("1.15", "1.16")
"""Minor versions of TRL that ``make test-versions`` runs."""

# Methods with the parameters that are given by name or by place here.
_METHODS = {
    "_prepare_inputs": ("generation_batch",),
    "_get_per_token_logps_and_entropies": ("model", "input_ids", "attention_mask", "logits_to_keep", "compute_entropy"),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
}
# Of Transformers: overridden under another name, nothing would load a critic; the rest would fail at a checkpoint.
_OF_TRANSFORMERS = ("_prepare_for_training", "_get_grad_norm", "_save_checkpoint", "_save", "_load_best_model")
_ATTRIBUTES = ("_pending_metrics", "_pending_extra_logs", "_metrics", "_logs", "_buffered_inputs")


def check_seams(trainer: GRPOTrainer) -> None:
    """Raise `UserError` if this TRL has moved a seam; call it when TRL's own constructor is through."""
    remedy = f"install a tested version ({', '.join(TESTED)}), or a newer ragen-trl"
    for name, parameters in _METHODS.items():
        method = getattr(GRPOTrainer, name, None)
        known = inspect.signature(method).parameters if callable(method) else {}
        missing = [one for one in parameters if one not in known]
        if missing:
            raise UserError(f"TRL {trl.__version__} has no GRPOTrainer.{name}({', '.join(missing)}); {remedy}")
    for name in _ATTRIBUTES:
        if not hasattr(trainer, name):
            raise UserError(f"TRL {trl.__version__} has no GRPOTrainer.{name}; {remedy}")
    for name in _OF_TRANSFORMERS:
        if not hasattr(Trainer, name):
            raise UserError(f"Transformers {transformers.__version__} has no Trainer.{name}; install an older version")


def token_scores(
    trainer: GRPOTrainer, model: Any, ids: torch.Tensor, attention: torch.Tensor, width: int, **options: Any
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(B, width) log-probabilities and, if asked for, entropies (nats) of the last tokens, and a router's loss."""
    found = trainer._get_per_token_logps_and_entropies(model, ids, attention, width, **options)
    return found[0], found[1], found[2] if len(found) > 2 else None


def rewards_by_function(
    trainer: GRPOTrainer,
    rows: list[dict[str, Any]],
    prompts: list[Any],
    completions: list[Any],
    completion_ids: list[list[int]],
) -> tuple[torch.Tensor, dict[str, float]]:
    """Call all reward functions as TRL does, on all processes together.

    Returns:
        (B, F) rewards of all processes, unweighted, NaN where a function gave none; and what the functions logged by
        ``log_metric``, means over processes. What they logged by ``log_extra`` is dropped: it has no table here.
    """
    rewards = trainer._calculate_rewards(rows, prompts, completions, completion_ids)
    metrics = {}
    for name in sorted(set(gather_object(list(trainer._pending_metrics)))):
        values = [value for part in gather_object([list(trainer._pending_metrics.get(name, []))]) for value in part]
        metrics[name] = fmean(values)
    trainer._pending_metrics.clear()
    trainer._pending_extra_logs.clear()
    return rewards, metrics


def log_values(trainer: GRPOTrainer, mode: str, values: Mapping[str, float]) -> None:
    """Log values of a ``mode``, "train" or "eval"; TRL writes the mean of each since the last row of its log."""
    for name, value in values.items():
        trainer._metrics[mode][name].append(float(value))


def forget_values(trainer: GRPOTrainer) -> None:
    """Drop what was logged and not yet written, as after a training that broke off."""
    for values in trainer._metrics.values():
        values.clear()


class PlainRollout(NamedTuple):
    """The last rollout of a plain ``GRPOTrainer``: (B, F) rewards and B completions (texts, or lists of messages).

    They are of all processes, ``micro_batches`` of this one.
    """

    rewards: torch.Tensor
    completions: list[Any]
    micro_batches: list[dict[str, Any]]


def last_rollout(trainer: GRPOTrainer) -> PlainRollout:
    """The last rollout of a plain ``GRPOTrainer``."""
    logs = trainer._logs
    by_function = [list(logs["rewards"][name]) for name in trainer.reward_func_names]
    return PlainRollout(torch.tensor(by_function).T, list(logs["completion"]), trainer._buffered_inputs)
