"""The logged figures of a rollout and of a micro-batch: pure functions on what was played, kept and scored."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch

from ragen_trl.algorithms.filtering import dispersion, group_std
from ragen_trl.algorithms.losses import kl_penalty
from ragen_trl.batching.batch import sampled_mask
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.episode import measure
from ragen_trl.system.float64 import float64_tensor, in_float64
from ragen_trl.trajectory import Trajectory

_FAILURES = "rollout/env_failures"


def rollout_sums(
    trajectories: Sequence[Trajectory],
    names: Sequence[str],
    envs: Sequence[str],
    total: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device,
    counted: int,
) -> dict[str, float]:
    """The sums that `rollout_means` divides, over all processes. Those of several batches may be added up first.

    ``names`` has the environment of each of this process's trajectories, of which the first ``counted`` count. ``envs``
    are all of the run, and fix the order of the sums on every process.
    """
    rows = [measure(trajectory) for trajectory in trajectories]
    sums: dict[str, float] = {}
    for name in ("", *(dict.fromkeys(envs) if len(set(envs)) > 1 else ())):  # "": all environments together
        own = [row for row, env in zip(rows[:counted], names[:counted], strict=True) if name in ("", env)]
        sums[f"{name}/episodes"] = float(len(own))
        sums |= {f"{name}/{key}": sum(row[key] for row in own) for key in rows[0]}
    sums[_FAILURES] = float(sum(trajectory.limit in FAILURES for trajectory in trajectories[:counted]))
    return dict(zip(sums, total(float64_tensor([*sums.values()], device)).tolist(), strict=True))


def rollout_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over trajectories; with several environments also for each that was played (``"Sokoban-v0/success"``).

    ``rollout/env_failures`` is a count, not a mean: the episodes that ended because an environment crashed or hung.
    """
    means = {}
    for key, value in sums.items():
        name, _, measured = key.rpartition("/")
        if key == _FAILURES:
            means[key] = value
        elif measured != "episodes" and (episodes := sums[f"{name}/episodes"]):
            means[key.removeprefix("/")] = value / episodes
    return means


def mean_difficulties(
    played: Sequence[TrajectorySummary], envs: Sequence[str], difficulty: Callable[[int, int], float]
) -> dict[str, float]:
    """Mean difficulty of all processes' start states, of each environment: two have no common scale."""
    found: dict[str, list[float]] = {}
    for one in played:
        name = f"{one.env}/difficulty" if len(set(envs)) > 1 else "difficulty"
        found.setdefault(name, []).append(difficulty(one.task, one.seed))
    return {name: fmean(values) for name, values in found.items()}


def filter_metrics(rollout: RolloutBatch, kept: Sequence[int]) -> dict[str, float]:
    """What the filter saw and did. Counts include the trajectories of refills and of dropped groups."""
    counts = {
        "filter/kept_groups": float(len(kept)),
        "filter/trajectories_sampled": float(len(rollout.summaries)),
        "filter/trajectories_used": float(len(kept) * rollout.group_size),
        "filter/skipped": float(not kept),
    }
    if rollout.group_size == 1:  # a single trajectory has no spread
        return counts
    stds = group_std(rollout.returns, rollout.group_size)
    return {
        "filter/in_group_std": stds.mean().item(),
        "filter/kept_in_group_std": stds[list(kept)].mean().item() if kept else 0.0,
        "filter/dispersion": dispersion(stds.square()),
        **counts,
    }


def without_update(step: int, updates: float) -> str:
    """What comes of a rollout that teaches nothing, from its first step on; ``updates``: how many a rollout has.

    Example:
        >>> without_update(5, 1), without_update(5, 2), without_update(5, 0.5)
        ('step 5 makes no update', 'steps 5 to 6 make no update', 'step 5 trains on nothing of one rollout')
    """
    if updates < 1:
        return f"step {step} trains on nothing of one rollout"
    last = step + int(updates) - 1
    return f"step {step} makes no update" if last == step else f"steps {step} to {last} make no update"


def masked_means(
    columns: Mapping[str, torch.Tensor], mask: torch.Tensor, total: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, float]:
    """The mean of each column of a micro-batch where the mask is not 0, over all processes; 0 if it is 0 everywhere.

    A mask that is not boolean or integer weighs.
    """
    used = mask.bool()
    weights = mask[used] if mask.is_floating_point() else used.new_ones(int(used.sum()))
    sums = [weights.sum(), *((column.detach()[used] * weights).sum() for column in columns.values())]
    count, *totals = total(in_float64(torch.stack(sums))).tolist()
    return {name: value / count if count else 0.0 for name, value in zip(columns, totals, strict=True)}


def scored_columns(
    logprobs: torch.Tensor, entropies: torch.Tensor, inputs: Mapping[str, torch.Tensor], mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What an update logs of each token, whatever its loss: the entropy and, where there is a reference, the KL (k3).

    All tensors are (B, T), log-probabilities and entropies in nats; ``mask`` is true at sampled tokens.
    """
    columns = {"entropy": entropies}
    if "ref_per_token_logps" in inputs:
        # Masked before the exponential: at environment tokens the policies may differ so much that it overflows.
        policy, reference = (each.masked_fill(~mask, 0.0) for each in (logprobs, inputs["ref_per_token_logps"]))
        columns["kl"] = kl_penalty(policy, reference, "k3")
    return columns


def ratio_deviation(logprobs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The largest |π(trained) / π(sampled) − 1| of a token, from (B, T) log-probabilities; 0 if the mask is empty."""
    difference = (logprobs - sampled)[mask]
    return difference.exp().sub(1).abs().amax() if difference.numel() else difference.new_zeros(())


def sampler_metrics(
    difference: torch.Tensor,
    ratio: torch.Tensor,
    unbounded: torch.Tensor,
    mask: torch.Tensor,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, float]:
    """How far the sampler is from the trainer, over the rows that are trained on, under TRL's names and one of ours.

    ``difference`` is (B, T), trainer's minus sampler's log-probabilities, NaN where the sampler gave none; ``ratio``
    and ``unbounded`` (before bounds) are (B, T) or (B, 1) importance ratios.
    """
    gaps = difference[mask.bool() & ~difference.isnan()].abs()
    counted = mask.bool() if ratio.shape == mask.shape else mask.any(dim=1)
    ratios = ratio[counted]
    here = [
        torch.stack([values.sum(), torch.tensor(float(values.numel()), device=values.device)])
        for values in (gaps, ratios, (ratios != unbounded[counted]).to(ratios))
    ]
    sums = gather(torch.cat(here)[None]).sum(dim=0).tolist()
    some = [values if values.numel() else values.new_full((1,), float("nan")) for values in (gaps, ratios)]
    ends = gather(torch.stack([some[0].max(), some[1].max(), -some[1].min()])[None])
    widest, largest, smallest = ends.nan_to_num(nan=-float("inf")).amax(dim=0).tolist()
    return {
        "sampling/sampling_logp_difference/mean": sums[0] / max(1.0, sums[1]),
        "sampling/sampling_logp_difference/max": widest,
        "sampling/importance_sampling_ratio/min": -smallest,
        "sampling/importance_sampling_ratio/mean": sums[2] / max(1.0, sums[3]),
        "sampling/importance_sampling_ratio/max": largest,
        "sampling/ratio_cut_share": sums[4] / max(1.0, sums[5]),
    }


def shown_advantages(
    rollout: RolloutBatch,
    kept: Sequence[int],
    chosen: RolloutBatch,
    advantages: torch.Tensor | None,
    gather: Callable[[list[float]], list[float]],
) -> list[float]:
    """One number for each trajectory of all processes: its advantage (the mean over its tokens), or 0 if dropped.

    ``advantages`` are (B,) of all processes, (L, T) of this one, or ``None`` if no group was kept.
    """
    groups = set(kept)
    values = iter([] if advantages is None else _one_each(chosen, advantages, gather))
    rows = range(len(rollout.summaries))
    return [next(values) if row // rollout.group_size in groups else 0.0 for row in rows]


def _one_each(
    chosen: RolloutBatch, advantages: torch.Tensor, gather: Callable[[list[float]], list[float]]
) -> list[float]:
    if advantages.ndim == 1:
        found: list[float] = advantages.tolist()
        return found
    mask = sampled_mask(chosen.batch)
    means = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return chosen.in_order(gather(means.tolist()))
