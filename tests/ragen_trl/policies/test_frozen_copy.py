"""The copy of a policy for a rollout in another thread: its own weights, whatever was patched onto the policy."""

from pathlib import Path
from types import MethodType
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from ragen_trl.policies.frozen_copy import FrozenCopy
from tests.support.ragen_trl.fake_vllm import LORA
from tests.support.ragen_trl.trainers import lottery, small_model, small_trainer

IDS = torch.tensor([[1, 2, 3]])


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    return model(IDS).logits  # type: ignore[no-any-return]


def test_a_copy_keeps_its_weights_until_it_is_taken_again(tmp_path: Path) -> None:
    """The forward pass that TRL binds to the policy, and Accelerate's for bfloat16, would compute with the policy's."""
    model = small_trainer(tmp_path, lottery()).model.train()
    assert "forward" in vars(model)  # TRL's
    inner = model.forward
    model.forward = MethodType(lambda self, *args, **kwargs: inner(*args, **kwargs), model)
    frozen, before = FrozenCopy(), logits(model)
    copied = frozen.take(model)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1.5)
    assert not torch.equal(logits(model), before)
    assert torch.equal(logits(copied), before)
    assert not copied.training and model.training
    assert frozen.take(model) is copied
    assert torch.equal(logits(copied), logits(model))


def test_a_lora_is_copied_without_its_base() -> None:
    model = get_peft_model(small_model(), LoraConfig(**LORA, init_lora_weights=False))
    frozen, before = FrozenCopy(), logits(model)
    copied = frozen.take(model)
    own = {name: value for name, value in copied.named_parameters() if value is not model.get_parameter(name)}
    assert own.keys() == {name for name, value in model.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for name in own:
            model.get_parameter(name).mul_(1.5)
    assert torch.equal(logits(copied), before)
    with model.disable_adapter():
        assert torch.equal(logits(copied), before)
    model.requires_grad_(True)  # now all is trained, so that nothing may be shared
    other = frozen.take(model)
    assert not any(value is model.get_parameter(name) for name, value in other.named_parameters())
