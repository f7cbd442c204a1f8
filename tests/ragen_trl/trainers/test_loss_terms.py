"""The terms of TRL's loss as this package calls it, against gradients worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from ragen_trl.batching.segments import segment_loss
from tests.support.ragen_trl.trainers import lottery, small_trainer

# Two rows of three completion tokens; the middle one of the first row is the environment's, the last of the second
# row is padding.
LOGP = [[-1.0, -2.0, -0.5], [-0.7, -1.6, 0.0]]
OLD = [[-1.3, -2.0, -0.4], [-0.9, -1.5, 0.0]]
REFERENCE = [[-1.5, -2.0, -0.2], [-0.4, -2.6, 0.0]]
MASK = [[1, 0, 1], [1, 1, 0]]
COMPLETION = [[1, 1, 1], [1, 1, 0]]
DOUBLE = torch.float64


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def trainer_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, logp: torch.Tensor, beta: float = 0.0, **options: Any
) -> Any:
    """A trainer whose policy has these log-probabilities, in the middle of an update of one micro-batch."""
    trainer = small_trainer(folder, lottery(), **{"delta": None, "entropy_coef": 0.0, **options})
    trainer.beta = beta  # as an option it would want a reference model
    scored = (logp, torch.full_like(logp, 2.0), None)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", lambda *_, **__: scored)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def micro_batch(advantages: Any, **columns: Any) -> dict[str, Any]:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    return {
        "prompt_ids": tokens[:, :1],
        "prompt_mask": torch.ones(2, 1, dtype=torch.long),
        "completion_ids": tokens,
        "completion_mask": torch.tensor(COMPLETION),
        "tool_mask": torch.tensor(MASK) | ~torch.tensor(COMPLETION).bool(),
        "advantages": double(advantages),
        "num_items_in_batch": torch.tensor(4.0),
        **{name: double(values) for name, values in columns.items()},
    }


def gradient(trainer: Any, logp: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    logp.grad = None
    trainer.trl_loss(trainer.model, inputs).backward()
    assert logp.grad is not None
    return logp.grad


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("on_policy", [True, False])
def test_the_gradient_of_the_kl_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corrected: bool, on_policy: bool
) -> None:
    """β = 1 and no advantage, each token a quarter (two rows of two tokens).

    With d = log π − log π_ref and ρ = π / π_old, the derivative of ρ (e^−d − 1 + d) by log π is ρ d: that of KL(π ‖
    π_ref), for samples of π_old. That of e^−d − 1 + d is 1 − e^−d, whose mean under π is the gradient of KL(π_ref ‖ π).
    """
    logp = double(LOGP).requires_grad_()
    trainer = trainer_of(tmp_path, monkeypatch, logp, beta=1.0, use_bias_correction_kl=corrected)
    columns = {"ref_per_token_logps": REFERENCE} | ({} if on_policy else {"old_per_token_logps": OLD})
    found = gradient(trainer, logp, micro_batch([0.0, 0.0], **columns))
    for row, column in ((0, 0), (0, 2), (1, 0), (1, 1)):
        distance = LOGP[row][column] - REFERENCE[row][column]
        ratio = 1.0 if on_policy else math.exp(LOGP[row][column] - OLD[row][column])
        expected = ratio * distance if corrected else 1 - math.exp(-distance)
        assert found[row, column].item() == pytest.approx(expected / 4, abs=1e-12), (row, column)
    assert found[0, 1] == found[1, 2] == 0


@pytest.mark.parametrize("corrected", [True, False])
def test_over_the_policys_samples_the_kl_terms_have_these_gradients(corrected: bool) -> None:
    """Three tokens, exact expectations: ρ·k3 descends KL(π ‖ π_ref), k3 alone KL(π_ref ‖ π)."""
    logits, reference = double([0.3, -0.2, 0.9]).requires_grad_(), double([1.0, 0.1, -0.5]).log_softmax(0)
    logp = logits.log_softmax(0)
    weights, d = logp.detach().exp(), logp - reference
    ratio = (logp - logp.detach()).exp() if corrected else 1.0
    (weights * ratio * (torch.exp(-d) - 1 + d)).sum().backward()
    found, logits.grad = logits.grad, None
    logp = logits.log_softmax(0)
    forward, reverse = (reference.exp() * (reference - logp)).sum(), (logp.exp() * (logp - reference)).sum()
    (reverse if corrected else forward).backward()
    torch.testing.assert_close(found, logits.grad, atol=1e-12, rtol=0)


@pytest.mark.parametrize("place", [(0, 1), (1, 2)], ids=["environment", "padding"])
@pytest.mark.parametrize("column", ["ref_per_token_logps", "old_per_token_logps"])
@pytest.mark.parametrize("gap", [95.0, -95.0])
def test_tokens_that_nobody_sampled_may_differ_by_95_nats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, place: tuple[int, int], gap: float
) -> None:
    """exp(95) is infinite in float32, and infinity times the mask's 0 is NaN: it made every weight NaN."""
    advantages = [[1.0, 1.0, -1.0], [0.5, -0.5, 1.0]]
    logp = torch.tensor(LOGP, requires_grad=True)
    trainer = trainer_of(tmp_path, monkeypatch, logp, beta=0.1)
    found = []
    for shift in (0.0, gap):
        inputs = micro_batch(advantages, ref_per_token_logps=REFERENCE, old_per_token_logps=OLD)
        inputs = {name: value.float() if value.dtype == DOUBLE else value for name, value in inputs.items()}
        inputs[column][place] += shift
        found.append(gradient(trainer, logp, inputs).clone())
    assert bool(found[0].isfinite().all()) and bool(found[0].any())
    assert torch.equal(*found)


@pytest.mark.parametrize("gap", [95.0, -95.0])
def test_rows_that_are_parts_of_trajectories_may_as_well(tmp_path: Path, gap: float) -> None:
    args = small_trainer(tmp_path, lottery()).args
    args.beta = 0.1
    logp = torch.tensor(LOGP, requires_grad=True)
    batch = {**micro_batch([1.0, -1.0]), "trajectory_share": torch.ones(2), "step_trajectories": torch.tensor(2.0)}
    old, reference = torch.tensor(OLD), torch.tensor(REFERENCE)
    old[0, 1] -= gap
    reference[1, 2] += gap
    segment_loss(logp, old, reference, batch, args)[0].backward()
    assert logp.grad is not None and bool(logp.grad.isfinite().all()) and bool(logp.grad.any())


def sequence_ratios() -> list[float]:
    """GSPO's ratio of each row: the means of log π − log π_old are (0.3 − 0.1) / 2 and (0.2 − 0.1) / 2."""
    return [math.exp(0.1), math.exp(0.05)]


def test_gspo_leaves_every_token_its_own_advantage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GSPO-token (arXiv 2507.18071): s_it = sg[s_i] π / sg[π], so a token's gradient is −s_i A_it / (|y_i| · rows).

    Before, both tokens of a row got the mean of its advantages.
    """
    logp = double(LOGP).requires_grad_()
    trainer = trainer_of(tmp_path, monkeypatch, logp, importance_sampling_level="sequence")
    advantages = [[1.0, 9.0, -3.0], [2.0, -0.5, 9.0]]
    found = gradient(trainer, logp, micro_batch(advantages, old_per_token_logps=OLD))
    first, second = sequence_ratios()
    expected = [[-first / 4, 0.0, 3 * first / 4], [-2 * second / 4, 0.5 * second / 4, 0.0]]
    torch.testing.assert_close(found, double(expected), atol=1e-12, rtol=0)
    on_policy = gradient(trainer, logp, micro_batch(advantages))
    torch.testing.assert_close(on_policy, double([[-0.25, 0.0, 0.75], [-0.5, 0.125, 0.0]]), atol=1e-12, rtol=0)
    assert trainer.importance_sampling_level == "sequence"


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo", "bnpo", "luspo", "sapo", "cispo", "vespo"])
@pytest.mark.parametrize("advantages", [[1.0, -0.5], [-1.0, 2.0]])
@pytest.mark.parametrize("others", ["nothing", "the KL of tokens", "a sampler's ratio of sequences"])
def test_gspo_of_equal_factors_is_trls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str, advantages: list[float], others: str
) -> None:
    """Where a row's tokens have one factor, and the ratio multiplies no other: TRL's own loss, gradient and step."""
    logp = double(LOGP).requires_grad_()
    options: dict[str, Any] = {"epsilon_high": 5.0} if loss_type == "cispo" else {}
    options |= {"importance_sampling_level": "sequence", "loss_type": loss_type, "use_bias_correction_kl": False}
    trainer = trainer_of(tmp_path, monkeypatch, logp, beta=float(others == "the KL of tokens"), **options)
    columns: dict[str, Any] = {"old_per_token_logps": OLD, "ref_per_token_logps": REFERENCE}
    if others == "a sampler's ratio of sequences":
        columns["importance_sampling_ratio"] = [[0.5], [1.5]]
    inputs = micro_batch(advantages, **columns)
    ours = trainer.trl_loss(trainer.model, inputs)
    found = gradient(trainer, logp, inputs).clone()
    trainer.use_vllm = "importance_sampling_ratio" in inputs
    theirs = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    logp.grad = None
    theirs.backward()
    assert logp.grad is not None and bool(found.any())
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    torch.testing.assert_close(found, logp.grad, atol=1e-12, rtol=0)


@pytest.mark.parametrize("advantages", [[0.0, 0.0], [1.0, -0.5]])
def test_vespo_weighs_the_kl_by_the_ratio_of_the_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advantages: list[float]
) -> None:
    """Regression: by that of each token, whatever `importance_sampling_level` said."""
    logp = double(LOGP).requires_grad_()
    options = {"loss_type": "vespo", "importance_sampling_level": "sequence"}
    trainer = trainer_of(tmp_path, monkeypatch, logp, beta=1.0, **options)
    inputs = micro_batch(advantages, old_per_token_logps=OLD, ref_per_token_logps=REFERENCE)
    theirs = GRPOTrainer._compute_loss(trainer, trainer.model, inputs).item()
    assert trainer.trl_loss(trainer.model, inputs).item() == pytest.approx(theirs, abs=1e-12)


def test_gspo_gives_the_kl_of_each_token_to_that_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """β = 1: the gradient at a token is s d / (|y| · rows). TRL's is s (1 − e^−d) and the mean of s k3 over the row."""
    logp = double(LOGP).requires_grad_()
    trainer = trainer_of(tmp_path, monkeypatch, logp, beta=1.0, importance_sampling_level="sequence")
    inputs = micro_batch([0.0, 0.0], old_per_token_logps=OLD, ref_per_token_logps=REFERENCE)
    first, second = sequence_ratios()
    expected = [[first * 0.5 / 4, 0.0, first * -0.3 / 4], [second * -0.3 / 4, second * 1.0 / 4, 0.0]]
    torch.testing.assert_close(gradient(trainer, logp, inputs), double(expected), atol=1e-12, rtol=0)


def test_gspo_clips_by_the_ratio_of_the_sequence_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ε = 0.06: the ratio of the first row is 1.105, of the second 1.051. One token of four has A > 0 in the first."""
    logp = double(LOGP).requires_grad_()
    options = {"importance_sampling_level": "sequence", "epsilon": 0.06, "epsilon_high": 0.06}
    trainer = trainer_of(tmp_path, monkeypatch, logp, **options)
    advantages = [[1.0, 9.0, -3.0], [2.0, -0.5, 9.0]]
    found = gradient(trainer, logp, micro_batch(advantages, old_per_token_logps=OLD))
    first, second = sequence_ratios()
    expected = [[0.0, 0.0, 3 * first / 4], [-2 * second / 4, 0.5 * second / 4, 0.0]]
    torch.testing.assert_close(found, double(expected), atol=1e-12, rtol=0)
    metrics = trainer._metrics["train"]
    assert metrics["clip_ratio/high_mean"] == [pytest.approx(1 / 4)]
    assert metrics["clip_ratio/low_mean"] == [0.0]


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_entropy_bonus_logs_what_trls_does(tmp_path: Path, accumulation: int) -> None:
    """`policy_loss` is the update's loss without the bonus, `entropy_coef` its weight."""
    options = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 8 // accumulation}
    trainer = small_trainer(tmp_path, lottery(draws=3), entropy_coef=0.25, max_steps=2, **options)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "policy_loss" in row]
    assert [row["entropy_coef"] for row in rows] == [0.25, 0.25]
    for row in rows:
        assert row["policy_loss"] - 0.25 * row["entropy"] == pytest.approx(row["loss"], abs=1e-6)
    assert max(abs(row["loss"]) for row in rows) > 0.01


def test_without_a_bonus_there_is_nothing_of_it_to_log(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(), entropy_coef=0.0, max_steps=1)
    trainer.train()
    assert not any({"policy_loss", "entropy_coef"} & row.keys() for row in trainer.state.log_history)
