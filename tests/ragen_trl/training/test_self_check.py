"""The first rollout tells whether the trainer computes what the sampler did; if not, nothing is learnt."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel

from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.training import scoring
from ragen_trl.training.self_check import (
    Gap,
    SamplerMismatchError,
    measure_gap,
)
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import TOKENIZER, AnyReply, Lottery, logged, lottery, parameters, small_trainer

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
    return AnyReply(Pages(draws=3), think=False, max_turns=3, max_actions=99, max_actions_per_turn=1)


def learned_positions() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(TOKENIZER), n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2
    )
    return GPT2LMHeadModel(config)


def without_positions(call: Any, *_: Any) -> Any:
    return call


@pytest.mark.parametrize("make", [small_trainer, astar])
def test_a_trainer_that_scores_otherwise_stops_before_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """A*-PO before the reference has played all start states."""
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    trainer = make(tmp_path, pages, model=learned_positions(), max_steps=2)
    before = parameters(trainer)
    with pytest.raises(SamplerMismatchError):
        trainer.train()
    assert trainer.state.global_step == 0
    for name, value in parameters(trainer).items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0)


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
