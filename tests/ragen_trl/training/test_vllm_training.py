"""Training with vLLM: whose weights it samples from, and what its log-probabilities do in the update."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from tests.support.ragen_trl.equivalence import step
from tests.support.ragen_trl.fake_vllm import (
    FakeModel,
    fake_of,
    vllm_trainer,
)
from tests.support.ragen_trl.trainers import logged, lottery, parameters


def test_training_samples_from_the_weights_of_every_step_and_sends_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=3, learning_rate=1e-2)
    before = parameters(trainer)
    trainer.train()
    assert max(float((value - before[name]).abs().max()) for name, value in parameters(trainer).items()) > 1e-2
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-4
    assert logged(trainer, "sampling/importance_sampling_ratio/mean") == pytest.approx([1.0] * 3, abs=1e-4)
    assert fake_of(trainer).loads == 3
    monkeypatch.setattr(FakeModel, "load", lambda *_: None)  # with weights of the first step ratios are off
    stale = vllm_trainer(tmp_path, monkeypatch, max_steps=2, learning_rate=1e-2)
    stale.train()
    assert logged(stale, "sampling/ratio_deviation_max")[1] > 1e-2


# Importance ratios

# Plain SGD: a step is the gradient. Filtered to half of the groups, in micro-batches: there is filler. An engine as far
# off as here would stop the run.
OFF: dict[str, Any] = {
    "optim": "sgd",
    "learning_rate": 1.0,
    "max_grad_norm": 0.0,
    "max_steps": 1,
    "entropy_coef": 0.0,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 8,
    "filter_ratio": 0.4,
    "max_reply_length": 3,
    "sampler_check": "warn",
}


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_a_ratio_weighs_every_token_and_none_of_what_the_loss_is_divided_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str
) -> None:
    """An engine that calls all tokens half as likely as they are: ratio 2, twice the step; beyond 3 it is cut off."""
    steps = {}
    for offset in (0.0, math.log(0.5), math.log(0.1)):
        trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), loss_type=loss_type, **OFF)
        fake_of(trainer).offset = offset
        steps[offset] = step(trainer)
        sampled, trained = (trainer.state.log_history[0][f"filter/trajectories_{kind}"] for kind in ("sampled", "used"))
        assert trained < sampled
    exact, doubled, capped = steps.values()
    assert max(float(value.abs().max()) for value in exact.values()) > 1e-3
    for name, value in exact.items():
        torch.testing.assert_close(doubled[name], 2 * value, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(capped[name], 3 * value, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_ratios_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Exp of the trainer's minus the sampler's log-probability, of tokens or summed over a trajectory, with bounds."""
    seen: list[dict[str, Any]] = []

    class Keeps(StarPOTrainer):
        def _add_scores(self, batch: dict[str, Any]) -> None:
            super()._add_scores(batch)
            seen.append(dict(batch))

    bounds = {"vllm_importance_sampling_clip_min": 0.9, "vllm_importance_sampling_clip_max": 1.1}
    options = {"vllm_importance_sampling_mode": mode, "max_steps": 1, "max_reply_length": 3, **bounds}
    options["sampler_check"] = "warn"  # an engine that is so far off would stop the run
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), trainer=Keeps, **options)
    fake_of(trainer).offset = -0.2 if "token" in mode else -0.03
    trainer.train()
    (batch,) = seen
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    differences = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"]).masked_fill(~mask, 0.0)
    exact = differences.exp() if "token" in mode else differences.sum(dim=1, keepdim=True).exp()
    outside = (exact < 0.9) | (exact > 1.1)
    expected = exact.masked_fill(outside, 0.0) if "mask" in mode else exact.clamp(0.9, 1.1)
    used = mask if "token" in mode else slice(None)
    torch.testing.assert_close(batch["importance_sampling_ratio"][used], expected[used])
    assert outside[used].any()
    row = trainer.state.log_history[0]
    assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(expected[used].mean().item())
    assert row["sampling/ratio_cut_share"] == pytest.approx(outside[used].float().mean().item())
