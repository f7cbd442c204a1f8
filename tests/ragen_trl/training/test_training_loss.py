"""An update: what is scored and computed of a rollout, the terms of its loss, where it stops, memory, DeepSpeed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from ragen_trl import AStarPOTrainer, StarPOTrainer
from ragen_trl.errors import NotFiniteError
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.equivalence import STEP, Alone, Awake, assert_same_step, step, with_adapter
from tests.support.ragen_trl.trainers import (
    TOKENIZER,
    Spy,
    contexts,
    logged,
    lottery,
    parameters,
    small_model,
    small_trainer,
)

# What is scored of a rollout


class Seen(Spy):
    """Counts the rows that are scored outside of the loss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.scored: list[int] = []
        super().__init__(*args, **kwargs)

    def _add_scores(self, batch: dict[str, Any]) -> None:
        self.scored.append(len(batch["completion_ids"]))
        super()._add_scores(batch)


SIX = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 6, "filter_ratio": 0.4}


def test_only_what_is_kept_is_scored_and_it_is_computed_in_full_micro_batches(tmp_path: Path) -> None:
    """Regression: old and reference log-probabilities of all 24 rows, then six passes of one or two rows."""
    options: dict[str, Any] = {**SIX, "beta": 0.5, "num_iterations": 2, "model": with_adapter()}
    trainer: Any = small_trainer(tmp_path, lottery(draws=3), trainer=Seen, **options)
    trainer.train()
    assert trainer.scored == [8]
    assert [len(contexts(batch)) for batch in trainer.batches] == [4, 4] * 2


# ``log_kl``

UPDATES: dict[str, Any] = {**STEP, "learning_rate": 0.3, "max_steps": 3}


@pytest.mark.parametrize(("trainer", "adapter"), [(StarPOTrainer, False), (Alone, True)])
def test_a_logged_kl_changes_no_bit_and_is_that_of_the_first_policy_also_when_resumed(
    tmp_path: Path, trainer: Any, adapter: bool
) -> None:
    """In whole rows, and in a row for each turn."""
    ends, saves = [], {"save_strategy": "steps", "save_steps": 2}
    for measures, resumes in ((False, False), (True, False), (True, True)):
        options = {**UPDATES, **saves, "model": with_adapter() if adapter else small_model(), "log_kl": measures}
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, **options)
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2") if resumes else None)
        ends.append(parameters(made))
        assert len(logged(made, "kl")) == 3 * measures
    assert all(torch.equal(weights, end[name]) for end in ends for name, weights in ends[0].items())
    first, *later = logged(made, "kl")
    assert abs(first) < 1e-6 and min(later) > 1e-5


# What is not finite


class Broken(StarPOTrainer):
    """Its second update goes wrong, in the second of two micro-batches."""

    fault = ""

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super().policy_loss(model, inputs)
        if self.state.global_step == 0 or not self.accelerator.sync_gradients:
            return loss
        self.before = parameters(self)
        if self.fault == "loss":
            return loss * float("nan")
        return loss + (0 * loss).abs().sqrt()  # finite, but √x has no derivative at 0


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
@pytest.mark.parametrize("fault", ["loss", "gradient"])
def test_the_run_stops_before_a_weight_moves(tmp_path: Path, fault: str, max_grad_norm: float) -> None:
    """Before, both made every weight NaN, and the run went on with random replies."""
    options: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer: Any = small_trainer(tmp_path, lottery(draws=2), trainer=Broken, max_grad_norm=max_grad_norm, **options)
    trainer.fault = fault
    with pytest.raises(NotFiniteError, match=f"^step 2.*{fault} is nan"):
        trainer.train()
    after = parameters(trainer)
    assert all(torch.equal(value, after[name]) for name, value in trainer.before.items())


# Under DeepSpeed, whose engine wants a loss with a graph and takes every step; ``tests/sharded`` has the engine itself


class Engine(StarPOTrainer):
    """Calculates its losses as under DeepSpeed, and keeps whether they have a graph."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> torch.Tensor:
        self.is_deepspeed_enabled = True
        try:
            loss = super().compute_loss(model, inputs, *args, **options)
        finally:
            self.is_deepspeed_enabled = False
        self.graphs = [*getattr(self, "graphs", []), loss.grad_fn is not None]
        return loss


@pytest.mark.parametrize(
    ("win", "options"),
    [(1.0, {**STEP, "filter_ratio": 0.2}), (0.0, {"filter_ratio": 0.4, "weight_decay": 0.5, "learning_rate": 0.01})],
    ids=["one group", "no group"],
)
def test_every_micro_batch_has_a_graph_and_the_step_is_the_same(tmp_path: Path, win: float, options: Any) -> None:
    """Regression: filler had a leaf of zero as its loss. Gradients of 0 would still decay weights by 0.5 · 0.01."""
    options = {**options, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 6, "max_steps": 1}
    engine: Any = small_trainer(tmp_path / "engine", lottery(win, draws=3), trainer=Engine, **options)
    plain = small_trainer(tmp_path / "plain", lottery(win, draws=3), **options)
    before = parameters(plain)
    for trainer in (engine, plain):
        trainer.train()
    assert engine.graphs == [True] * 6
    assert engine.optimizer.param_groups[0]["lr"] == options["learning_rate"]  # of the next step
    for key, value in parameters(plain).items():
        torch.testing.assert_close(parameters(engine)[key], value, rtol=1e-5, atol=1e-7, msg=key)
        assert win or torch.equal(value, before[key])


# Dropout


def gpt2() -> PreTrainedModel:
    """With 0.1 in its modules, as published."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(TOKENIZER), n_embd=32, n_layer=2, n_head=4, initializer_range=0.2))


LORA = LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.5, init_lora_weights=False)


@pytest.mark.parametrize(("model", "adapter"), [(gpt2, None), (small_model, LORA)], ids=["GPT-2", "LoRA"])
def test_the_first_ratio_is_one_whatever_drops(tmp_path: Path, model: Any, adapter: Any) -> None:
    """Regression: LoRA dropout was on in the loss, 0.02 to 0.035 nats from what was sampled."""
    trainer = small_trainer(tmp_path, lottery(draws=2), model=model(), peft_config=adapter, max_steps=1)
    trainer.train()
    (deviation,) = logged(trainer, "sampling/ratio_deviation_max")
    assert deviation < 1e-4


# What saves memory changes no gradient: few trajectories at a time, activations computed twice, logits in tiles


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
    "group, LoRA, reference": (starpo, True, {"beta": 0.1}),
    "critic, LoRA": (starpo, True, {"advantage": "gae"}),
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
        critics.append([] if trainer.critic is None else [one.detach() for one in trainer.critic.parameters])
        passes.append(len(calls))
    assert_same_step(*steps)
    assert passes[1] == 2 * passes[0]  # each forward pass again in the backward pass
    assert len(critics[0]) == len(critics[1])
    for first, second in zip(*critics, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=2e-5)  # Adam blows rounding up
