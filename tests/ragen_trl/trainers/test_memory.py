"""What saves memory changes no gradient: few trajectories at a time, activations computed twice, logits in tiles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel
from trl.kernels import chunked_logprob

from ragen_trl import AStarPOTrainer, evaluate
from ragen_trl.credit.critic_networks import AdapterNetwork, SeparateNetwork
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.equivalence import STEP, Awake, assert_same_step, step, with_adapter
from tests.support.ragen_trl.trainers import lottery, small_model, small_trainer


def starpo(folder: Path, lora: bool, **options: Any) -> Any:
    """Eight episodes of one to three turns, one in each micro-batch."""
    options = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, **STEP, **options}
    return small_trainer(folder, lottery(draws=3), trainer=Awake, model=with_adapter() if lora else None, **options)


def astar_po(folder: Path, lora: bool, **options: Any) -> Any:
    """The same, in the second of two updates, where policy and reference differ."""
    size = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": 0.5}
    options = {**STEP, **size, "max_steps": 2, "beta2": 0.1, "kl_coef": 0.1, **options}
    trainer = with_adapter() if lora else None
    return astar(folder, lottery(draws=3), trainer=AStarPOTrainer, model=trainer, **options)


CASES: dict[str, tuple[Callable[..., Any], bool, dict[str, Any]]] = {
    "group": (starpo, False, {}),
    "group, LoRA, reference": (starpo, True, {"beta": 0.1}),
    "critic": (starpo, False, {"advantage": "gae"}),
    "critic, LoRA": (starpo, True, {"advantage": "gae"}),
    "A*-PO": (astar_po, False, {}),
    "A*-PO, LoRA": (astar_po, True, {}),
}


def passes_of(model: PreTrainedModel) -> list[bool]:
    """Grows with every pass with gradients through the first block, its feed-forward layer to be exact.

    Hooks of the block itself stay outside of what is computed twice, and a pass that is made again stops when it can.
    """
    (inside,) = [module for name, module in model.named_modules() if name.endswith("layers.0.mlp")]
    passes: list[bool] = []
    inside.register_forward_pre_hook(lambda *_: passes.append(True) if torch.is_grad_enabled() else None)
    return passes


@pytest.mark.parametrize("name", CASES)
def test_gradient_checkpointing_computes_twice_and_takes_the_same_step(tmp_path: Path, name: str) -> None:
    make, lora, options = CASES[name]
    steps, critics, passes = [], [], []
    for checkpointing in (False, True):
        trainer = make(tmp_path / str(checkpointing), lora, gradient_checkpointing=checkpointing, **options)
        calls = passes_of(trainer.model)
        moved = step(trainer)
        steps.append({key: value for key, value in moved.items() if value.any() or not lora})
        critics.append([] if trainer.critic is None else [one.detach() for one in trainer.critic.network.parameters])
        passes.append(len(calls))
    assert_same_step(*steps)
    assert passes[1] == 2 * passes[0]  # each forward pass again in the backward pass
    assert len(critics[0]) == len(critics[1])
    for first, second in zip(*critics, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=2e-5)  # Adam blows rounding up


@pytest.mark.parametrize("name", ["group", "A*-PO"])
def test_few_trajectories_at_a_time_are_those_that_are_played_together(tmp_path: Path, name: str) -> None:
    """In stage 1 and in evaluation, too."""
    make, lora, options = CASES[name]
    steps, rows, evaluated = [], [], []
    for size in (None, 3):
        trainer = make(tmp_path / str(size), lora, rollout_batch_size=size, **options)
        sampled: list[int] = []
        trainer.model.register_forward_pre_hook(
            lambda module, args, kwargs, sampled=sampled: sampled.append(len(kwargs["input_ids"]))
            if kwargs.get("past_key_values") is not None
            else None,
            with_kwargs=True,
        )
        steps.append(step(trainer))
        evaluated.append(evaluate(trainer.policy(), lottery(draws=3), trainer.args, episodes=10).as_dict())
        rows.append(max(sampled))
    assert_same_step(*steps)
    assert rows[0] > 3 == rows[1]
    assert {**evaluated[0], "seconds": 0} == {**evaluated[1], "seconds": 0}


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest floating-point tensor had that an operation gave back."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for found in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(found, torch.Tensor) and found.is_floating_point():
                self.numbers = max(self.numbers, found.numel())
        return result


@pytest.mark.parametrize("lora", [False, True])
def test_log_probabilities_never_hold_the_logits_of_a_whole_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: bool
) -> None:
    """TRL goes through the vocabulary in tiles of 4096 tokens; here they are made small enough to be seen.

    Forward and backward of the policy, and of both critics, which have no logits at all.
    """
    tokens, vocabulary = 16, 64
    monkeypatch.setattr(chunked_logprob, "TOKEN_CHUNK_SIZE", tokens)
    monkeypatch.setattr("trl.trainer.utils._CHUNKED_LOGPROB_CHUNK_SIZE", vocabulary)
    trainer = starpo(tmp_path, lora)
    length, size = 300, trainer.model.config.vocab_size
    ids = torch.randint(size, (1, length), generator=torch.Generator().manual_seed(0))
    ones = torch.ones_like(ids)
    columns = {"prompt_ids": ids[:, :10], "prompt_mask": ones[:, :10]}
    batch = {**columns, "completion_ids": ids[:, 10:], "completion_mask": ones[:, 10:]}
    weights = max(value.numel() for value in trainer.model.parameters())
    networks = [SeparateNetwork(small_model(), torch.device("cpu"), False)]
    networks += [AdapterNetwork(trainer.model, torch.device("cpu"))] if lora else []  # type: ignore[list-item]
    with Largest() as largest:
        logprobs, entropies = trainer.score(trainer.model, batch)
        (logprobs.sum() + entropies.sum()).backward()
        for network in networks:
            with network.active(training=True):
                network(ids, ones).sum().backward()
    assert logprobs.shape == (1, length - 10)
    assert weights <= largest.numbers < (length - 10) * size
