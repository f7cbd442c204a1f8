"""On a GPU the trainer's log-probabilities are the sampler's, with each kernel, precision and kind of training.

The self-check of the first update stops a run in which they differ by more than rounding. Each test also records by how
much they differ, so that the report of a campaign has the figures.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.utils import is_flash_attn_2_available

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.training.self_check import BFLOAT16, EXACT
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.pretrained import LORA, Run
from tests.support.ragen_trl.trainers import TOKENIZER, both_scores

Make = Callable[..., Any]


def checked(run: Run, record: Callable[[str, object], None], mean: float = BFLOAT16.mean) -> Run:
    """Train, and record the gap of the first update; every metric is a number, and the weights have moved."""
    run.train()
    (gap,) = run.gaps
    record("gap_mean", gap.mean)
    record("gap_largest", gap.largest)
    record("ratio_deviation", max(run.logged("sampling/ratio_deviation_max")))
    assert gap.tokens > 0 and gap.mean <= mean
    assert all(torch.tensor(run.logged(name)).isfinite().all() for name in ("loss", "grad_norm", "entropy"))
    after = run.trained()
    assert any(not torch.equal(value, after[name]) for name, value in run.before.items())
    return run


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointing"])
@pytest.mark.parametrize("adapter", [None, LORA], ids=["all weights", "LoRA"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_form_of_training_agrees_with_its_sampler_in_bfloat16(
    model: Make, run: Make, record_property: Any, attention: str, adapter: Any, checkpointing: bool
) -> None:
    made = model(attn_implementation=attention)
    checked(run(made, peft_config=adapter, gradient_checkpointing=checkpointing), record_property)


@pytest.mark.parametrize("adapter", [None, LORA], ids=["all weights", "LoRA"])
def test_weights_in_bfloat16_agree(model: Make, run: Make, record_property: Any, adapter: Any) -> None:
    checked(run(model().to(torch.bfloat16), peft_config=adapter, learning_rate=1e-2), record_property)


def test_float32_agrees_to_its_own_rounding(model: Make, run: Make, record_property: Any) -> None:
    checked(run(model(), bf16=False), record_property, EXACT.mean)


@pytest.mark.parametrize("advantage", ["gae", "gigpo"])
def test_a_critic_and_credit_for_turns_train(model: Make, run: Make, record_property: Any, advantage: str) -> None:
    checked(run(model(), advantage=advantage), record_property)


@pytest.mark.parametrize("backend", ["MATH", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_each_kernel_of_sdpa_takes_our_masks(
    model: Make, run: Make, device: torch.device, record_property: Any, backend: str
) -> None:
    """Flash is not among them: it takes no mask, and every pass here has one."""
    if device.type == "cpu" and backend != "MATH":
        pytest.skip("a kernel of GPUs")
    with sdpa_kernel(SDPBackend.__members__[backend]):
        checked(run(model()), record_property)


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_an_engine_of_vllm_agrees(
    run: Make, model: Make, device: torch.device, tmp_path: Any, record_property: Any, attention: str
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    if device.type == "cpu":
        pytest.skip("make test-vllm is the rehearsal")
    if attention != "sdpa" and not is_flash_attn_2_available():
        pytest.skip("FlashAttention is not installed")
    made = model()
    made.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    loading = {"attn_implementation": attention, "dtype": "bfloat16"}
    checked(
        run(str(tmp_path), use_vllm=True, vllm_gpu_memory_utilization=0.1, model_init_kwargs=loading),
        record_property,
        0.1,
    )


def test_a_gpu_scores_what_it_sampled_as_the_cpu_does(model: Make, device: torch.device, record_property: Any) -> None:
    """The same weights in float32, tokens sampled with a kept cache there, one pass over each trajectory here."""
    policy = TransformersPolicy(model().to(device), Chat(TOKENIZER), Sampling(6))
    played = play(quizzes([1, 2, 3, 3]), policy, [Start(seed, sampling_seed=seed) for seed in range(4)])
    here, gaps = model().eval(), []
    for one in played:
        sampler, expected = both_scores(here, one)
        gaps += (expected - sampler).abs().tolist()
    record_property("gap_largest", max(gaps))
    assert len(gaps) > 12 and max(gaps) < 1e-3


def test_a_stopped_run_goes_on_with_the_same_numbers(model: Make, run: Make, device: torch.device) -> None:
    """Resumed after two of four updates, losses are those of the unbroken run: the GPU's generator goes on, too."""
    whole = run(model(), max_steps=4, bf16=False, save_strategy="steps", save_steps=2).train()
    folder = f"{whole.trainer.args.output_dir}/checkpoint-2"
    again = run(model(), max_steps=4, bf16=False).train(resume_from_checkpoint=folder)
    assert again.logged("loss")[-2:] == pytest.approx(whole.logged("loss")[-2:], abs=1e-4)
