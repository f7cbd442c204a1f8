"""StarPO's loss: gradients worked out by hand, TRL's own loss, and itself however it is split."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from ragen_trl.algorithms.losses import policy_loss
from tests.support.ragen_trl.trainers import double, lottery, small_trainer

# Two rows of three completion tokens; the middle one of the first row is the environment's, the last of the second
# row is padding.
LOGP = [[-1.0, -2.0, -0.5], [-0.7, -1.6, 0.0]]
OLD = [[-1.3, -2.0, -0.4], [-0.9, -1.5, 0.0]]
REFERENCE = [[-1.5, -2.0, -0.2], [-0.4, -2.6, 0.0]]
SAMPLED = torch.tensor([[True, False, True], [True, True, False]])


def run(
    logp: torch.Tensor, advantages: Any, old: Any = OLD, mask: torch.Tensor = SAMPLED, **options: Any
) -> tuple[float, torch.Tensor]:
    """The loss of an update of these rows alone, and its gradient by their log-probabilities."""
    leaf = logp.detach().clone().requires_grad_()
    before = leaf.detach() if old is None else double(old).to(logp)
    tokens, rows = int(mask.sum()), len(mask)
    shares = torch.ones(rows, dtype=logp.dtype)
    loss, _ = policy_loss(leaf, before, torch.as_tensor(advantages).to(logp), mask, shares, tokens, rows, **options)
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("old", [OLD, None])
def test_the_gradient_of_the_kl_term(unbiased: bool, old: Any) -> None:
    """β = 1 and no advantage, each token a quarter (two rows of two tokens).

    With d = log π − log π_ref and ρ = π / π_old, the derivative of ρ (e^−d − 1 + d) by log π is ρ d: that of KL(π ‖
    π_ref), for samples of π_old. That of e^−d − 1 + d is 1 − e^−d, whose mean under π is the gradient of KL(π_ref ‖ π).
    """
    options: dict[str, Any] = {"ref_logprobs": double(REFERENCE), "beta": 1.0, "unbiased_kl": unbiased}
    _, found = run(double(LOGP), [0.0, 0.0], old, **options)
    for row, column in ((0, 0), (0, 2), (1, 0), (1, 1)):
        distance = LOGP[row][column] - REFERENCE[row][column]
        ratio = 1.0 if old is None else math.exp(LOGP[row][column] - OLD[row][column])
        expected = ratio * distance if unbiased else 1 - math.exp(-distance)
        assert found[row, column].item() == pytest.approx(expected / 4, abs=1e-12), (row, column)
    assert found[0, 1] == found[1, 2] == 0


@pytest.mark.parametrize("kind", ["grpo", "cispo"])
@pytest.mark.parametrize("gap", [95.0, -95.0])
def test_tokens_that_nobody_sampled_may_differ_by_95_nats(kind: str, gap: float) -> None:
    """exp(95) is infinite in float32, and infinity times the mask's 0 is NaN: it made every weight NaN."""
    found = []
    for shift in (0.0, gap):
        old, reference = torch.tensor(OLD), torch.tensor(REFERENCE)
        for column in (old, reference):
            column[0, 1] += shift  # the environment's
            column[1, 2] -= shift  # padding
        advantages = [[1.0, 1.0, -1.0], [0.5, -0.5, 1.0]]
        found.append(run(torch.tensor(LOGP), advantages, old.tolist(), ref_logprobs=reference, beta=0.1, kind=kind)[1])
    assert bool(found[0].isfinite().all()) and bool(found[0].any())
    assert torch.equal(*found)


KINDS: dict[str, dict[str, Any]] = {
    "grpo": {"epsilon_high": 0.28},
    "dapo": {},
    "dr_grpo": {},
    "cispo": {"epsilon_high": 5.0},
}


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("term", ["nothing", "kl", "sampler", "dual clip"])
@pytest.mark.parametrize("kind", KINDS)  # a dual clip with "cispo" is refused
def test_where_both_exist_it_is_trls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, term: str, level: str
) -> None:
    """Ratios of sequences are GSPO-token's here; where a row's tokens have one factor, TRL's have the same gradient."""
    options: dict[str, Any] = {"loss_type": kind, "importance_sampling_level": level, "entropy_coef": 0.0}
    options |= {**KINDS[kind], "delta": 1.3 if term == "dual clip" and kind != "cispo" else None}
    options["use_bias_correction_kl"] = False
    trainer: Any = small_trainer(tmp_path, lottery(), **options)
    trainer.beta = 0.5 if term == "kl" else 0.0
    trainer.use_vllm = term == "sampler"
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    logp, ratio = double(LOGP).requires_grad_(), double([[0.5], [1.5]])
    scored = (logp, torch.full_like(logp, 2.0), None)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", lambda *_, **__: scored)
    tokens = torch.zeros(2, 3, dtype=torch.long)
    inputs = {
        "prompt_ids": tokens[:, :1],
        "prompt_mask": torch.ones(2, 1, dtype=torch.long),
        "completion_ids": tokens,
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "tool_mask": SAMPLED.long(),
        "advantages": double([-1.0, 2.0]),
        "old_per_token_logps": double(OLD),
        "ref_per_token_logps": double(REFERENCE),
        "importance_sampling_ratio": ratio,
        "num_items_in_batch": torch.tensor(4.0),
    }
    theirs = GRPOTrainer._compute_loss(trainer, trainer.model, inputs)
    theirs.backward()
    high = KINDS[kind].get("epsilon_high", 0.2)
    extra: dict[str, Any] = {"ref_logprobs": double(REFERENCE), "beta": trainer.beta, "dual_clip": options["delta"]}
    extra |= {"sampler_ratio": ratio if term == "sampler" else None, "longest": trainer.max_completion_length}
    loss, found = run(double(LOGP), [-1.0, 2.0], kind=kind, epsilon_high=high, ratios_of=level, **extra)
    assert logp.grad is not None and bool(found.any())
    assert loss == pytest.approx(theirs.item(), abs=1e-9)
    torch.testing.assert_close(found, logp.grad, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trajectory_in_two_segments_has_the_gradient_of_one(kind: str) -> None:
    """Four tokens of one trajectory, and two beside it: in two rows, and in three, which share what is divided by."""
    logp = double([[-1.0, -2.0, -0.5, -0.1], [-0.7, -1.6, 0.0, 0.0]])
    old = double([[-1.1, -1.8, -0.6, -0.3], [-0.9, -0.9, 0.0, 0.0]])
    mask, advantages = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool(), double([[1.0, -2.0, 0.5, 1.0], [2.0] * 4])
    common: dict[str, Any] = {"kind": kind, "longest": 10, "epsilon_high": 5.0}
    whole = logp.clone().requires_grad_()
    policy_loss(whole, old, advantages, mask, torch.ones(2), 6, 2, **common)[0].backward()
    parts = torch.stack([logp[0], logp[0], logp[1]]).requires_grad_()
    olds, credit = torch.stack([old[0], old[0], old[1]]), torch.stack([advantages[0], advantages[0], advantages[1]])
    own = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 0, 0]]).bool()
    shares = double([0.25, 0.75, 1.0])
    policy_loss(parts, olds, credit, own, shares, 6, 2, **common)[0].backward()
    assert whole.grad is not None and parts.grad is not None
    joined = torch.stack([parts.grad[0] + parts.grad[1], parts.grad[2]])
    torch.testing.assert_close(joined, whole.grad, atol=1e-12, rtol=0)
