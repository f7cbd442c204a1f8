"""The first rollout tells whether the trainer computes what the sampler did; if not, nothing is learnt."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.trainers.self_check import (
    BFLOAT16,
    EXACT,
    MERGED,
    OTHER_KERNELS,
    QUANTISED,
    Gap,
    SamplerMismatchError,
    check_gap,
    measure_gap,
    tolerance_for,
)
from ragen_trl.trainers.trl import scoring
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import TOKENIZER, AnyReply, Lottery, lottery, parameters, small_trainer

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
    assert parts.tolist() == [3.0, 0.75, 0.5, 2.0]  # tokens, sum, largest, position 2 of the first row
    other = torch.tensor([1.0, 2.0, 2.0, 7.0])
    assert Gap.of(torch.cat([parts, other])) == Gap(4, 2.75 / 4, 2.0, 7)
    assert Gap.of(torch.zeros(8)) == Gap(0, 0.0, 0.0, 0)


def test_what_the_sampler_did_not_say_is_not_compared() -> None:
    nothing = {**BATCH, "sampling_per_token_logps": torch.tensor([[0.0, 0.0, 0.0], [math.nan, 0.0, 0.0]])}
    assert measure_gap(SCORED, nothing).tolist() == [0.0, 0.0, 0.0, 2.0]


def test_a_trainer_without_a_number_is_infinitely_far() -> None:
    assert measure_gap(SCORED.masked_fill(SCORED == -1.75, math.nan), BATCH)[2].item() == math.inf


def test_a_sampler_that_normalises_what_is_left_may_be_above() -> None:
    """Those of vLLM are from after top-p: here a token is 0.5 above, of which ln(1 / 0.7) is allowed."""
    assert measure_gap(SCORED, BATCH, slack=-math.log(0.7))[2].item() == pytest.approx(0.25)
    assert measure_gap(SCORED, BATCH, slack=math.inf)[1].item() == pytest.approx(0.25)


def test_a_tolerance_fits_the_precision() -> None:
    assert tolerance_for("float32", quantised=False, vllm=False) == EXACT
    assert tolerance_for("bfloat16", quantised=False, vllm=False) == BFLOAT16
    assert tolerance_for("bfloat16", quantised=True, vllm=False) == QUANTISED
    assert tolerance_for("float32", quantised=False, vllm=True) == OTHER_KERNELS
    assert tolerance_for("float32", quantised=False, vllm=False, merged=True) == EXACT
    assert tolerance_for("bfloat16", quantised=False, vllm=False, merged=True) == MERGED
    check_gap(Gap(9, 0.04, 1.9, 3), BFLOAT16, "m", stop=True)
    with pytest.raises(SamplerMismatchError, match="of m are.* 9 sampled tokens.* 0.04 nats.* 1.9 at most .token 3 of"):
        check_gap(Gap(9, 0.04, 1.9, 3), EXACT, "m", stop=True)


def test_one_improbable_token_of_a_short_micro_batch_is_no_mismatch() -> None:
    """Low precision has a long tail: 0.6 nats at one of 8 tokens, 0.005 at the mean of 800."""
    short, others = torch.tensor([8.0, 0.6, 0.6, 3.0]), torch.tensor([792.0, 3.4, 0.05, 9.0])
    with pytest.raises(SamplerMismatchError):
        check_gap(Gap.of(short), BFLOAT16, "m", stop=True)
    whole = Gap.of(torch.cat([short, others]))
    assert (whole.tokens, whole.mean, whole.position) == (800, pytest.approx(0.005), 3)
    check_gap(whole, BFLOAT16, "m", stop=True)


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


COMPILED = {"torch_compile": True, "torch_compile_backend": "eager"}


@pytest.mark.parametrize(
    ("make", "options"),
    [(small_trainer, {}), (astar, {}), (small_trainer, COMPILED)],
    ids=["StarPO", "A*-PO", "compiled"],
)
def test_learned_positions_are_those_of_the_sampler(tmp_path: Path, make: Any, options: Any) -> None:
    """Regression: TRL passes none, and padding on the left shifted GPT-2 by 2.4 nats without a word.

    A compiled model's wrapper hid that GPT-2 takes positions.
    """
    trainer = make(tmp_path, pages, model=learned_positions(), max_steps=1, **options)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "sampling/ratio_deviation_max" in row]
    assert [row["sampling/ratio_deviation_max"] for row in rows] == [pytest.approx(0.0, abs=1e-4)]


@pytest.mark.parametrize("make", [small_trainer, astar])
def test_a_trainer_that_scores_otherwise_stops_before_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """A*-PO before the reference has played all start states."""
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    trainer = make(tmp_path, pages, model=learned_positions(), max_steps=2)
    before = parameters(trainer)
    with pytest.raises(SamplerMismatchError, match=r"in memory \(gpt2\).* nats in the mean.*0.001 and 0.05 are"):
        trainer.train()
    assert trainer.state.global_step == 0
    for name, value in parameters(trainer).items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0)


def test_a_resumed_run_is_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    small_trainer(tmp_path, pages, model=learned_positions(), max_steps=1, **options).train()
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    trainer = small_trainer(tmp_path, pages, model=learned_positions(), max_steps=2, **options)
    with pytest.raises(SamplerMismatchError):
        trainer.train(resume_from_checkpoint=True)


def test_only_the_first_update_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    class Counting(StarPOTrainer):
        def check_gap_to_sampler(self, parts: torch.Tensor) -> Gap:
            checked.append(int(parts[0]))
            return super().check_gap_to_sampler(parts)

    options: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 3}
    small_trainer(tmp_path, pages, trainer=Counting, **options).train()
    assert len(checked) == 1  # all micro-batches of the first update together
    assert checked[0] > 0


def test_a_warning_is_enough_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scoring, "PackedModel", without_positions)
    with caplog.at_level(logging.WARNING):
        small_trainer(tmp_path, pages, model=learned_positions(), sampler_check="warn", max_steps=1).train()
    assert caplog.text.count("log-probabilities of a model in memory (gpt2) are not the sampler's") == 1
    with pytest.raises(ValueError, match="sampler_check is 'no'; choose one of stop, warn"):
        StarPOConfig(output_dir=str(tmp_path), use_cpu=True, sampler_check="no")  # type: ignore[arg-type]


def test_a_script_has_no_log_probabilities_to_compare(tmp_path: Path) -> None:
    class Scripted(StarPOTrainer):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            script = ScriptedPolicy(lambda env, random: "<answer>ticket</answer>", self.chat)
            return super().rollout(starts, envs, script)

    trainer = small_trainer(tmp_path, lottery(), trainer=Scripted, max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.parametrize("make", [small_trainer, astar])
def test_a_sampler_with_merged_lora_is_the_trained_policy(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``init_lora_weights=False``: products that are not zero from the first rollout on."""
    adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    reply, merges, trained = TransformersPolicy._reply, [], {}

    def watched(policy: TransformersPolicy, requests: Any) -> Any:
        merges.append(any(layer.merged for layer in policy.model.modules() if hasattr(layer, "merged_adapters")))
        return reply(policy, requests)

    monkeypatch.setattr(TransformersPolicy, "_reply", watched)
    for merged in (False, True):
        torch.manual_seed(0)
        trainer = make(tmp_path / str(merged), lottery(draws=2), peft_config=adapter, merge_lora=merged)
        trainer.train()
        rows = [row for row in trainer.state.log_history if "loss" in row]
        assert max(row["sampling/ratio_deviation_max"] for row in rows) < 1e-4
        assert merges and set(merges) == {merged}
        merges.clear()
        trained[merged] = parameters(trainer)
    for name, value in trained[False].items():
        torch.testing.assert_close(trained[True][name], value, atol=1e-4, rtol=1e-3)
