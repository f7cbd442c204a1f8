"""Does the trainer compute what the sampler did? The tokens of the first rollout tell, before anything is learnt.

Before the first update both must give every sampled token the same log-probability, up to rounding. Where they do not,
the ratio of every loss is wrong from the start, and nothing else shows it: rewards come in, and the loss falls. The
figures come from the forward pass of the loss itself, so the check costs nothing.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ragen_trl.batching.batch import sampled_mask
from ragen_trl.errors import UserError

logger = logging.getLogger(__name__)


class SamplerMismatchError(UserError, RuntimeError):
    """The trainer's log-probabilities of sampled tokens are not those at which they were sampled."""


class Tolerance(NamedTuple):
    """Largest gaps that rounding explains, in nats: of the mean over tokens, and of a single one."""

    mean: float
    largest: float


EXACT = Tolerance(1e-3, 0.05)  # float32 on both sides: 51 kinds of small models reach 1e-5 at most
# Few bits of mantissa, and sums in another order in passes of another shape. Under autocast on a CPU, random models of
# 8 to 16 layers of width 256 reach 0.016 in the mean and 0.11 at most, a mixture of experts 0.6, where a token goes to
# another expert.
FLOAT16, BFLOAT16 = Tolerance(0.02, 1.0), Tolerance(0.05, 2.0)
# vLLM computes in half precision unless asked, merging LoRA rounds, and quantised weights are scaled by blocks.
OTHER_KERNELS = Tolerance(0.1, math.inf)


def tolerance_of(policy: PreTrainedModel, mixed_precision: str, args: Any) -> Tolerance:
    """How far the sampler may be from a trainer's policy, without wrappers, under its configuration."""
    half = mixed_precision if mixed_precision in ("bf16", "fp16") else str(policy.dtype).removeprefix("torch.")
    exact = half == "float32" and not args.tf32
    if args.use_vllm or getattr(policy, "is_quantized", False) or (args.merge_lora and not exact):
        return OTHER_KERNELS
    return EXACT if exact else BFLOAT16 if half in ("bf16", "bfloat16") else FLOAT16


class Gap(NamedTuple):
    """How far two computations' log-probabilities of so many tokens are apart: mean and largest difference, in nats."""

    tokens: int
    mean: float
    largest: float

    @staticmethod
    def of(parts: torch.Tensor) -> "Gap":
        """The gap over many results of `measure_gap`, (n · 3,): of micro-batches and processes."""
        rows = parts.view(-1, 3)
        tokens = rows[:, 0].sum().item()
        return Gap(int(tokens), rows[:, 1].sum().item() / max(1.0, tokens), rows[:, 2].max().item())


def measure_gap(logprobs: torch.Tensor, batch: Mapping[str, torch.Tensor], slack: float = 0.0) -> torch.Tensor:
    """(3,) float32 of this process: number of tokens, sum and largest of |difference|.

    ``logprobs`` are (B, T), in nats. The sampler's may be larger by ``slack``: vLLM normalises what top-k and top-p
    leave.
    """
    sampled, mask = batch["sampling_per_token_logps"], sampled_mask(batch)
    known = (sampled.float() * mask != 0).any(dim=1, keepdim=True)
    used = mask & known & ~sampled.isnan()
    difference = (logprobs.detach().float() - sampled.float()).nan_to_num(math.inf, math.inf, math.inf)
    gap = torch.where(difference < 0, (-difference - slack).clamp(min=0), difference)
    gap = torch.where(used, gap, torch.zeros_like(gap))
    largest = gap.max() if gap.numel() else gap.new_zeros(())
    return torch.stack([used.sum().float(), gap.sum(), largest])


def check_gap(gap: Gap, allowed: Tolerance, model: str, stop: bool) -> None:
    """Raise `SamplerMismatchError`, or warn unless ``stop``, if the gap of all processes is more than is allowed."""
    if gap.mean <= allowed.mean and gap.largest <= allowed.largest:
        return
    message = (
        f"the trainer's log-probabilities of {model} are not the sampler's: over {gap.tokens} sampled tokens of the "
        f"first rollout they differ by {gap.mean:.3g} nats in the mean and by {gap.largest:.3g} at most, "
        f"where {allowed.mean:g} and {allowed.largest:g} are allowed. Every loss would start from "
        "wrong ratios. Take a model that docs/one_gpu.md lists; if the "
        "model has noise in training (a router's jitter, dropout that is a number), set it to 0 in its configuration; "
        "with vLLM, start the engine with this run's model in this run's precision. If your rollout hook plays another "
        "policy on purpose, set sampler_check='warn'"
    )
    if stop:
        raise SamplerMismatchError(message)
    logger.warning("%s", message)
