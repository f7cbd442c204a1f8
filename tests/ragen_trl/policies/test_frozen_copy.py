"""The copy of a policy for a rollout in another thread: its own weights, whatever was patched onto the policy."""

import os
import threading
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from ragen_trl.policies.frozen_copy import FrozenCopy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.fake_vllm import LORA, starts
from tests.support.ragen_trl.trainers import TOKENIZER, lottery, small_model, small_trainer

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


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_rollout_beside_training_leaves_the_environment_of_the_process_alone(in_thread: bool) -> None:
    """Transformers reads this variable in every attention layer, so the passes of training would, too."""
    model, seen = small_model(), set()
    model.register_forward_pre_hook(lambda *_: seen.add(os.environ.get("TRANSFORMERS_SDPA_FORCE_GQA")))
    policy = TransformersPolicy(model, Chat(TOKENIZER), Sampling(3, 1.0))
    played: list[Any] = []

    def run() -> None:
        played.extend(play(quizzes([2, 1]), policy, starts(2)))

    if in_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert len(played) == 2
    assert seen == ({None} if in_thread else {None, "1"})
