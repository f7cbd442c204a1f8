"""A*-PO with vLLM: stage 1 samples from the reference, stage 2 from the policy, and ratios weigh nothing."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from ragen_trl import AStarPOConfig
from ragen_trl.rollout.loop import play
from ragen_trl.trainers.reference import ReferenceWeightsError
from tests.support.ragen_trl.astar_runs import astar, draws
from tests.support.ragen_trl.equivalence import step
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.fake_vllm import (
    LORA,
    fake_of,
    starts,
    vllm_trainer,
)
from tests.support.ragen_trl.trainers import logged, lottery, parameters


def test_a_regression_takes_no_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for offset in (0.0, math.log(0.5)):
        options = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1}
        options |= {"sampler_check": "warn"}  # an engine that is so far off stops the run
        folder = tmp_path / str(offset)
        trainer = vllm_trainer(folder, monkeypatch, lottery(draws=3), make=astar, **options)
        fake_of(trainer).offset = offset
        steps.append(step(trainer))
        assert all("importance_sampling_ratio" not in batch for batch in trainer.batches)
    assert max(float(value.abs().max()) for value in steps[0].values()) > 1e-3
    for name, value in steps[0].items():
        torch.testing.assert_close(steps[1][name], value, rtol=0.0, atol=0.0)
    with pytest.raises(ValueError, match="vllm_importance_sampling_correction is True.*A\\*-PO"):
        AStarPOConfig(output_dir="x", use_cpu=True, vllm_importance_sampling_correction=True)


@pytest.mark.parametrize("lora", [None, {}, {"init_lora_weights": False}])
def test_stage_1_samples_from_the_reference_and_stage_2_from_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, Any] | None
) -> None:
    more = {} if lora is None else {"peft_config": LoraConfig(**LORA, **lora)}
    trainer = vllm_trainer(
        tmp_path, monkeypatch, draws(), make=astar, max_steps=3, refresh_steps=2, learning_rate=1e-2, **more
    )
    trainer.train()
    assert trainer.estimated_at == [0, 2]
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-4
    assert fake_of(trainer).loads == 5  # reference, policy, policy, the new reference, policy
    assert max(float(t.turns[0].logprobs[0]) for t in trainer.reference_played) < 0.0


def test_v_star_after_training_is_still_that_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, draws(), make=astar, max_steps=2, learning_rate=1e-2)
    untrained = parameters(trainer)
    trainer.train()
    trained = parameters(trainer)
    (tmp_path / "values.sqlite").unlink()
    trainer.estimate_values()
    for name, value in fake_of(trainer).model.named_parameters():
        assert torch.equal(value, untrained[name])
    play(quizzes([1]), trainer.policy(), starts(1))
    for name, value in fake_of(trainer).model.named_parameters():
        assert torch.equal(value, trained[name])


def test_a_reference_that_is_a_switched_off_adapter_cannot_be_sent_after_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(
        tmp_path, monkeypatch, draws(), make=astar, max_steps=2, learning_rate=1e-2, peft_config=LoraConfig(**LORA)
    )
    trainer.train()
    with pytest.raises(ReferenceWeightsError, match="reanchor"):
        trainer.estimate_values()
    trainer.reference.reanchor()
    trainer.estimate_values()


@pytest.mark.filterwarnings("ignore:Could not find a config file in kept somewhere:UserWarning")  # nothing is there
def test_a_lora_run_of_a_star_po_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint holds the reference's fingerprint, and the reference is the base."""
    options = {"max_steps": 3, "learning_rate": 1e-2, "save_strategy": "steps", "save_steps": 1}
    lora = LoraConfig(**LORA)
    vllm_trainer(tmp_path, monkeypatch, draws(), make=astar, peft_config=lora, **options).train()
    resumed = vllm_trainer(tmp_path, monkeypatch, draws(), make=astar, peft_config=lora, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.state.global_step == 3
    assert resumed.estimated_at == []
