"""How rollouts and the trainer call a Transformers model: positions, masks of pairs, casts, without wrappers."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel


def takes_positions(model: type[PreTrainedModel]) -> bool:
    """Whether a model can be told the position of each token."""
    return "position_ids" in inspect.signature(model.forward).parameters


def cache_name(model: type[PreTrainedModel]) -> str:
    """What a model calls its keys and values: ``cache`` since Transformers 5.24; empty if it keeps none."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), "")


def with_positions(
    call: Callable[..., Any], model: PreTrainedModel | PeftModel, attention: torch.Tensor
) -> Callable[..., Any]:
    """The call of a model with the position of each token, counted from the first that is not padding.

    ``attention`` is (B, T), 0 at padding. Without positions a model with learned ones takes padding on the left for
    text, and rotary embeddings that depend on the length of a pass count it, too.
    """
    if not takes_positions(type(unwrapped(model))):
        return call
    return partial(call, position_ids=(attention.cumsum(dim=1) - 1).clamp(min=0))


def mask_for(model: PreTrainedModel, visible: torch.Tensor) -> torch.Tensor:
    """What a model takes as the mask of (N, 1, L, L) pairs: SDPA a boolean one, eager attention one that is added."""
    return visible if model.config._attn_implementation != "eager" else additive_mask(model, visible)


def additive_mask(model: PreTrainedModel, visible: torch.Tensor) -> torch.Tensor:
    """The mask of (N, 1, L, L) pairs as numbers to add to the scores, in the precision that attention computes in.

    For training: of a boolean mask SDPA makes such numbers in each layer, and autograd keeps every copy.
    """
    device, dtype = visible.device.type, model.dtype
    if torch.is_autocast_enabled(device) and model.config._attn_implementation != "eager":
        dtype = torch.get_autocast_dtype(device)
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill(~visible, torch.finfo(dtype).min)


@contextmanager
def weights_cast_once(model: torch.nn.Module) -> Iterator[None]:
    """In this block autocast casts each weight once, also frozen ones, such as those below an adapter.

    Otherwise it would cast those in every pass, for every single token. The casts take the memory of a second copy of
    the weights in half precision. Only for passes without gradients.
    """
    frozen = []
    if torch.is_autocast_enabled(next(model.parameters()).device.type):
        frozen = [value for value in model.parameters() if value.dtype == torch.float32 and not value.requires_grad]
    try:
        for value in frozen:
            value.requires_grad = True
        yield
    finally:
        for value in frozen:
            value.requires_grad = False


@contextmanager
def base_kept(model: torch.nn.Module, device: str | None = None) -> Iterator[None]:
    """In this block LoRA may be merged into its base weights: afterwards these are as they were, to the last bit.

    PEFT subtracts what it has added, which rounds; A*-PO's reference and the KL's are that base. Meanwhile a copy is on
    ``device``, by default that of the weights.
    """
    layers = [module.get_base_layer() for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    kept = [weight.detach().to(device or weight.device, copy=True) for weight in weights]
    try:
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.data.copy_(value)


@contextmanager
def lora_merged(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """In this block LoRA's product is part of the weights, so a layer is one operation and not about nine.

    For passes whose time goes into starting operations, such as single tokens on a GPU. Quantised layers and embeddings
    stay as they are. Relies on PEFT: a LoRA layer whose ``merged_adapters`` is not empty computes its base layer alone.
    """
    layers = [one for one in model.modules() if type(one) is Linear and not (one.merged or one.disable_adapters)]
    with base_kept(model):
        try:
            for layer in layers:
                layer.merge()
            yield
        finally:
            for layer in layers:
                layer.merged_adapters.clear()


def without_router_logits(model: PreTrainedModel) -> dict[str, bool]:
    """What keeps a mixture of experts from computing its load-balancing loss, which takes (B, T) masks only."""
    asks = getattr(model.config.get_text_config(), "output_router_logits", False)
    return {"output_router_logits": False} if asks else {}


def unwrapped(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model without its adapters' wrapper."""
    return model.get_base_model() if isinstance(model, PeftModel) else model
