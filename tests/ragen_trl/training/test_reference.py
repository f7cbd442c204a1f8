"""The frozen policy: swapped in and out without a trace, for full models and for LoRA; its file and fingerprint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from ragen_trl.training.reference import Reference
from tests.support.ragen_trl.references import FULL, IDS, KINDS, change, logits, policy_of, reference_logits

# PEFT's advice on adapters of tied embeddings, which a kind of policy here has on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_stays_what_the_policy_was_until_it_is_reanchored(kind: str) -> None:
    """And its fingerprint, which knows the reference and not the policy."""
    policy = policy_of(kind)
    reference = Reference(policy)
    fingerprints = [Reference(policy_of(kind)).fingerprint()]
    for number in range(3):  # at first the reference is the policy as it was
        before = logits(policy)
        if number:
            reference.reanchor()
            fingerprints.append(reference.fingerprint())
        assert reference.reanchored == bool(number)
        change(policy)
        after = logits(policy)
        assert (after - before).abs().max() > 0.01
        assert torch.equal(reference_logits(reference), before)
        assert torch.equal(logits(policy), after)
        assert reference.fingerprint() == fingerprints[-1]
    assert len({*fingerprints, Reference(policy).fingerprint()}) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [False, True])
def test_the_policy_comes_out_as_it_went_in(kind: str, fails: bool) -> None:
    policy = policy_of(kind)
    policy.get_submodule("base_model.model.model" if kind != FULL else "model").layers[0].eval()  # a mode of its own
    next(parameter for parameter in policy.parameters() if parameter.requires_grad).requires_grad_(False)
    reference = Reference(policy)
    change(policy)

    def state() -> list[Any]:
        parameters = [(id(value), value.data_ptr(), value.requires_grad) for value in policy.parameters()]
        adapters = [policy.active_adapters, list(policy.peft_config)] if isinstance(policy, PeftModel) else []
        return [parameters, [module.training for module in policy.modules()], adapters, list(policy.state_dict())]

    before, weights = state(), [value.detach().clone() for value in policy.parameters()]
    try:
        with reference.model() as model:
            assert not any(module.training for module in model.modules())
            assert not model(input_ids=IDS).logits.requires_grad
            if fails:
                raise KeyError("inside")
    except KeyError:
        assert fails
    assert state() == before
    assert all(torch.equal(a, b) for a, b in zip(weights, policy.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_reference_comes_back_exactly(tmp_path: Path, kind: str) -> None:
    policy = policy_of(kind)
    reference = Reference(policy)
    change(policy)
    reference.reanchor()
    expected, fingerprint = reference_logits(reference), reference.fingerprint()
    reference.save(tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["reference.safetensors"]
    resumed = policy_of(kind)
    change(resumed, by=-0.1)
    fresh = Reference(resumed)
    assert fresh.fingerprint() != fingerprint
    fresh.load(tmp_path / "new")
    assert fresh.reanchored
    assert fresh.fingerprint() == fingerprint
    assert torch.equal(reference_logits(fresh), expected)
