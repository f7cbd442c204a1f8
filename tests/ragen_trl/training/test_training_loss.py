"""An update: what is computed of a rollout, terms of the loss, where it stops, memory, DeepSpeed; the self-check."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from ragen_trl import AStarPOTrainer, StarPOTrainer
from ragen_trl.errors import NotFiniteError
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.training import scoring
from ragen_trl.training.self_check import Gap, SamplerMismatchError, measure_gap
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.equivalence import STEP, Alone, Awake, assert_same_step, step
from tests.support.ragen_trl.trainers import (
    TOKENIZER,
    AnyReply,
    Lottery,
    Spy,
    any_reply,
    as_with_deepspeed,
    contexts,
    logged,
    lottery,
    parameters,
    small_model,
    small_trainer,
    with_adapter,
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
        loss: torch.Tensor = as_with_deepspeed(StarPOTrainer.compute_loss)(self, model, inputs, *args, **options)
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
    """With learned positions, and 0.1 of dropout in its modules, as published."""
    torch.manual_seed(0)
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


CASES: dict[str, dict[str, Any]] = {
    "group, reference": {"beta": 0.1},
    "critic": {"advantage": "gae"},
    "A*-PO": {"max_steps": 2, "learning_rate": 0.5, "beta2": 0.1, "kl_coef": 0.1},  # policy and reference differ
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
    """Eight episodes of one to three turns, one in each micro-batch, of a policy with an adapter."""
    make, trainer_class = (astar, AStarPOTrainer) if name == "A*-PO" else (small_trainer, Awake)
    options = {**STEP, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, **CASES[name]}
    steps, critics, passes = [], [], []
    for checkpointing in (False, True):
        options |= {"gradient_checkpointing": checkpointing, "model": with_adapter()}
        trainer: Any = make(tmp_path / str(checkpointing), lottery(draws=3), trainer=trainer_class, **options)
        calls = passes_of(trainer.model)
        steps.append({key: value for key, value in step(trainer).items() if value.any()})
        critics.append([] if trainer.critic is None else [one.detach() for one in trainer.critic.parameters])
        passes.append(len(calls))
    assert_same_step(*steps)
    assert passes[1] == 2 * passes[0]  # each forward pass again in the backward pass
    for first, second in zip(*critics, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=2e-5)  # Adam blows rounding up


# The first rollout tells whether the trainer computes what the sampler did; if not, nothing is learnt


# Two rows of a prompt of 2 and 1 tokens; in the second only the first token is the model's.
BATCH = {
    "prompt_mask": torch.tensor([[1, 1], [0, 1]]),
    "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "tool_mask": torch.tensor([[1, 0, 1], [1, 0, 1]]),
    "sampling_per_token_logps": torch.tensor([[-1.0, 0.0, -2.0], [-3.0, 0.0, 0.0]]),
}
SCORED = torch.tensor([[-1.5, -9.0, -1.75], [-3.0, -9.0, -9.0]])


def test_the_gap_is_that_of_sampled_tokens_over_all_processes() -> None:
    parts = measure_gap(SCORED, BATCH)
    assert parts.tolist() == [3.0, 0.75, 0.5]  # tokens, sum, largest
    other = torch.tensor([1.0, 2.0, 2.0])
    assert Gap.of(torch.cat([parts, other])) == Gap(4, 2.75 / 4, 2.0)
    assert Gap.of(torch.zeros(6)) == Gap(0, 0.0, 0.0)
    unsaid = {**BATCH, "sampling_per_token_logps": torch.tensor([[0.0, 0.0, 0.0], [math.nan, 0.0, 0.0]])}
    assert measure_gap(SCORED, unsaid).tolist() == [0.0, 0.0, 0.0]
    assert measure_gap(SCORED.masked_fill(SCORED == -1.75, math.nan), BATCH)[2].item() == math.inf
    # vLLM's are from after top-p: here a token is 0.5 above, of which ln(1 / 0.7) is allowed.
    assert measure_gap(SCORED, BATCH, slack=-math.log(0.7))[2].item() == pytest.approx(0.25)


class Pages(Lottery):
    """A lottery whose first messages differ in length, so that prompts are padded."""

    def _start(self, options: Any) -> str:
        return super()._start(options) + " and again" * int(self.np_random.integers(20))


def pages() -> AnyReply:
    """Three turns of it."""
    return any_reply(Pages(draws=3), 3)


def without_positions(call: Any, *_: Any) -> Any:
    return call


@pytest.mark.parametrize("make", [small_trainer, astar])
def test_a_trainer_that_scores_otherwise_stops_before_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """A*-PO before the reference has played all start states."""
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    trainer = make(tmp_path, pages, model=gpt2(), max_steps=2)
    before = parameters(trainer)
    with pytest.raises(SamplerMismatchError):
        trainer.train()
    assert trainer.state.global_step == 0
    for name, value in parameters(trainer).items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0)


class Late(Spy):
    """Its filter keeps nothing of the first rollout."""

    def select_groups(self, rollout: Any) -> list[int]:
        return super().select_groups(rollout) if self.state.global_step else []


def test_an_update_on_the_oracles_replies_alone_leaves_the_check_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    trainer = small_trainer(tmp_path, pages, trainer=Late, model=gpt2(), oracle_coef=1.0, max_steps=2)
    with pytest.raises(SamplerMismatchError):
        trainer.train()
    assert trainer.state.global_step == 1


def test_a_sampler_with_merged_lora_is_the_trained_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``init_lora_weights=False``: products that are not zero from the first rollout on."""
    adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    reply, merges, trained = TransformersPolicy._reply, [], {}

    def watched(policy: TransformersPolicy, requests: Any) -> Any:
        merges.append(any(layer.merged for layer in policy.model.modules() if hasattr(layer, "merged_adapters")))
        return reply(policy, requests)

    monkeypatch.setattr(TransformersPolicy, "_reply", watched)
    for merged in (False, True):
        torch.manual_seed(0)
        trainer = small_trainer(tmp_path / str(merged), lottery(draws=2), peft_config=adapter, merge_lora=merged)
        trainer.train()
        assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-4
        assert merges and set(merges) == {merged}
        merges.clear()
        trained[merged] = parameters(trainer)
    for name, value in trained[False].items():
        torch.testing.assert_close(trained[True][name], value, atol=1e-4, rtol=1e-3)
