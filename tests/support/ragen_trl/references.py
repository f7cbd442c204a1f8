"""What the tests of A*-PO's reference share: policies of every kind."""

from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from ragen_trl.training.reference import Reference
from tests.support.ragen_trl.trainers import small_model

IDS = torch.arange(24).reshape(2, 12) * 7 % 500

FULL, FRESH, WARM = "full", "fresh LoRA", "warm-started LoRA"
DORA, WHOLE, EMBEDDINGS = "DoRA", "LoRA and a whole module", "LoRA on embeddings"
KINDS = [FULL, FRESH, WARM, DORA, WHOLE, EMBEDDINGS]


def lora(**changes: Any) -> LoraConfig:
    """Adapters on attention, with dropout."""
    return LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.5, **changes})


def policy_of(kind: str) -> Any:
    """A policy in training mode."""
    if kind == FULL:
        return small_model().train()
    options: dict[str, dict[str, Any]] = {
        DORA: {"use_dora": True},
        WHOLE: {"modules_to_save": ["norm"]},
        EMBEDDINGS: {"target_modules": ["q_proj", "embed_tokens"]},
    }
    torch.manual_seed(0)
    policy = get_peft_model(small_model(), lora(**options.get(kind, {})))
    if kind == WARM:
        change(policy)
    return policy.train()


def change(policy: Any, by: float = 0.02) -> None:
    """Training, as far as a reference can tell."""
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * by)


def logits(model: Any) -> torch.Tensor:
    """(2, 12, V) logits without dropout; the model's mode stays."""
    training = model.training
    with torch.no_grad():
        result: torch.Tensor = model.eval()(input_ids=IDS).logits
    model.train(training)
    return result


def reference_logits(reference: Reference) -> torch.Tensor:
    """(2, 12, V) logits of the reference."""
    with reference.model() as model:
        result: torch.Tensor = model(input_ids=IDS).logits
    return result
