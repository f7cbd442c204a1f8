"""The reference on disk, and its fingerprint."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from ragen_trl.trainers.reference import Reference, ReferenceWeightsError
from tests.support.ragen_trl.references import (
    FRESH,
    FULL,
    KINDS,
    WARM,
    change,
    logits,
    lora,
    policy_of,
    reference_logits,
)
from tests.support.ragen_trl.trainers import small_model

# PEFT's advice on adapters of tied embeddings, which a kind of policy here has on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_the_fingerprint_knows_the_reference_and_not_the_policy(kind: str) -> None:
    policy = policy_of(kind)
    reference = Reference(policy)
    first = reference.fingerprint()
    assert first == Reference(policy_of(kind)).fingerprint()
    change(policy)
    policy.eval()
    reference_logits(reference)
    assert reference.fingerprint() == first
    reference.reanchor()
    second = reference.fingerprint()
    assert second != first
    change(policy)
    assert reference.fingerprint() == second
    assert Reference(policy).fingerprint() != second


@pytest.mark.parametrize("kind", [FULL, FRESH, WARM])
def test_one_changed_weight_changes_the_fingerprint(kind: str) -> None:
    first = Reference(policy_of(kind)).fingerprint()
    names = [name for name, _ in policy_of(kind).named_parameters()]
    base = [name for name in names if "lora" not in name]
    adapter = [name for name in names if "lora" in name]
    for name in [base[0], base[-1], *(adapter[-1:] if kind == WARM else [])]:
        policy = policy_of(kind)
        with torch.no_grad():
            policy.get_parameter(name).view(-1)[-1] += 1e-6
        assert Reference(policy).fingerprint() != first, name


def test_settings_that_change_the_computation_change_the_fingerprint() -> None:
    first = Reference(policy_of(FULL)).fingerprint()
    policy = policy_of(FULL)
    policy.config.use_cache = False
    policy.config.pad_token_id = 5
    assert Reference(policy).fingerprint() == first
    policy.config.rope_parameters = {**policy.config.rope_parameters, "rope_theta": 5000.0}
    assert Reference(policy).fingerprint() != first
    warm, scaled = policy_of(WARM), policy_of(WARM)
    scaled.peft_config["default"].lora_alpha = 32
    assert Reference(warm).fingerprint() != Reference(scaled).fingerprint()


def test_adapters_that_add_nothing_leave_the_base_models_fingerprint() -> None:
    """Whatever their rank and their random half; so that all of these share their cached values."""
    first = Reference(small_model()).fingerprint()
    for changes in ({}, {"r": 8, "target_modules": "all-linear"}, {"target_modules": ["embed_tokens"]}):
        assert Reference(get_peft_model(small_model(), lora(**changes))).fingerprint() == first


def test_an_adapter_of_another_is_not_in_the_fingerprint() -> None:
    policy = policy_of(WARM)
    reference = Reference(policy)
    first = reference.fingerprint()
    policy.add_adapter("critic", lora())
    assert reference.fingerprint() == first


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


def test_a_reference_with_the_adapters_off_is_saved_as_that(tmp_path: Path) -> None:
    policy = policy_of(FRESH)
    expected = logits(policy)
    Reference(policy).save(tmp_path)
    assert load_file(tmp_path / "reference.safetensors") == {}
    change(policy)
    reference = Reference(policy)
    assert not torch.equal(reference_logits(reference), expected)
    reference.load(tmp_path)
    assert torch.equal(reference_logits(reference), expected)


@pytest.mark.parametrize("kind", [FULL, WARM])
def test_a_checkpoint_of_the_policy_does_not_hold_the_reference(tmp_path: Path, kind: str) -> None:
    policy = policy_of(kind)
    reference = Reference(policy)
    reference.reanchor()
    change(policy)
    policy.save_pretrained(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_dir()]
    loaded: PreTrainedModel | PeftModel
    if kind == FULL:
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    else:
        loaded = PeftModel.from_pretrained(small_model(), tmp_path)
        assert list(policy.peft_config) == ["default"]
    assert torch.allclose(logits(loaded), logits(policy), atol=1e-6)


def test_weights_that_are_missing_damaged_or_foreign_are_refused(tmp_path: Path) -> None:
    reference = Reference(policy_of(WARM))
    with pytest.raises(ReferenceWeightsError, match="cannot be read"):
        reference.load(tmp_path)
    reference.save(tmp_path)
    path = tmp_path / "reference.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(ReferenceWeightsError, match="written whole"):
        reference.load(tmp_path)
    path.write_bytes(whole)
    with pytest.raises(ReferenceWeightsError, match="another policy.*only in the file or only in the policy"):
        Reference(policy_of(FULL)).load(tmp_path)
    other = get_peft_model(small_model(), lora(r=8))
    with pytest.raises(ReferenceWeightsError, match=r"has shape \(8, 32\) in the policy and \(4, 32\)"):
        Reference(other).load(tmp_path)
