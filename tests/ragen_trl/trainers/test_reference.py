"""The frozen policy: swapped in and out without a trace, for full models and for LoRA."""

from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import PeftModel, get_peft_model
from trl.trainer.utils import add_fused_lm_head

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Request, TurnEnv
from ragen_trl.trainers.reference import Reference, ReferenceWeightsError
from tests.support.ragen_trl.references import (
    FRESH,
    FULL,
    IDS,
    KINDS,
    WARM,
    change,
    logits,
    lora,
    policy_of,
    reference_logits,
)
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

# PEFT's advice on adapters of tied embeddings, which a kind of policy here has on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_stays_what_the_policy_was(kind: str) -> None:
    policy = policy_of(kind)
    before = logits(policy)
    reference = Reference(policy)
    change(policy)
    after = logits(policy)
    assert (after - before).abs().max() > 0.01
    assert torch.equal(reference_logits(reference), before)
    assert torch.equal(logits(policy), after)


@pytest.mark.parametrize("changes", [{"modules_to_save": ["norm"]}, {"bias": "lora_only"}])
def test_what_an_earlier_run_trained_besides_the_factors_belongs_to_the_reference(changes: dict[str, Any]) -> None:
    """One factor is still 0, but switched off this policy would be another."""
    policy = get_peft_model(small_model(), lora(**changes))
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if parameter.requires_grad and "lora" not in name:
                parameter.add_(0.5)
    before = logits(policy)
    reference = Reference(policy)
    change(policy)
    assert torch.equal(reference_logits(reference), before)


@pytest.mark.parametrize("kind", KINDS)
def test_reanchoring_makes_the_policy_the_reference_as_often_as_one_likes(kind: str) -> None:
    policy = policy_of(kind)
    reference = Reference(policy)
    assert not reference.reanchored
    for _ in range(2):
        change(policy)
        before = logits(policy)
        reference.reanchor()
        assert reference.reanchored
        change(policy)
        assert torch.equal(reference_logits(reference), before)


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
def test_gradients_and_optimiser_do_not_notice(kind: str) -> None:
    """Two steps with the reference run between forward and backward, and two without."""
    results = []
    for with_reference in (False, True):
        policy = policy_of(kind).eval()
        reference = Reference(policy)
        optimizer = torch.optim.AdamW([value for value in policy.parameters() if value.requires_grad], lr=0.01)
        for _ in range(2):
            loss = policy(input_ids=IDS).logits.logsumexp(-1).mean()
            if with_reference:
                reference_logits(reference)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if with_reference:
                reference.reanchor()
        results.append(logits(policy))
    assert torch.equal(*results)


@pytest.mark.parametrize("kind", [FULL, FRESH, WARM])
def test_the_fused_head_of_trl_works_for_both(kind: str) -> None:
    """TRL binds it to the instance; the reference is that instance."""
    policy = policy_of(kind)
    add_fused_lm_head(policy.get_base_model() if isinstance(policy, PeftModel) else policy, temperature=2.0)
    reference = Reference(policy)
    expected = torch.log_softmax(logits(policy)[:, :-1] / 2.0, -1).gather(-1, IDS[:, 1:, None]).squeeze(-1)
    change(policy)
    with reference.model() as model:
        found = model(input_ids=IDS, labels=IDS, fused_lm_head=True).log_probs
    assert torch.allclose(found[:, : expected.shape[1]], expected, atol=1e-5)


def test_autocast_around_both_does_not_keep_the_policys_weights() -> None:
    policy = policy_of(FULL)
    reference = Reference(policy)
    with torch.autocast("cpu", torch.bfloat16):
        expected = reference_logits(reference)
    change(policy)
    with torch.autocast("cpu", torch.bfloat16):
        policy(input_ids=IDS)
        assert torch.equal(reference_logits(reference), expected)
        trained = policy(input_ids=IDS).logits.detach()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(policy(input_ids=IDS).logits, trained)
    assert not torch.equal(trained, expected)


def test_a_reference_plays_through_the_policys_own_sampler() -> None:
    policy = policy_of(WARM)
    before = greedy_answer(policy)
    reference = Reference(policy)
    change(policy, by=1.0)
    with reference.model() as model:
        assert greedy_answer(model) == before
    assert greedy_answer(policy) != before


def greedy_answer(model: Any) -> tuple[int, ...]:
    """Eight tokens."""
    policy = TransformersPolicy(model, Chat(TOKENIZER), Sampling(8, temperature=0))
    policy.begin([0])
    env: Any = TurnEnv
    return policy.reply([Request(0, "Hello", tuple(policy.chat.start("Hello")), env)])[0].ids


def test_the_reference_follows_the_policy_to_another_dtype() -> None:
    policy = policy_of(FULL)
    reference = Reference(policy)
    change(policy)
    policy.to(torch.bfloat16)
    expected = logits(small_model().to(torch.bfloat16))
    assert torch.equal(reference_logits(reference), expected)


def test_a_prepared_policy_has_its_reference_too() -> None:
    policy = policy_of(FRESH)
    reference = Reference(policy)
    before = logits(policy)
    prepared = Accelerator(cpu=True).prepare(policy)
    change(prepared)
    assert torch.equal(reference_logits(reference), before)


def test_parameters_that_changed_their_shape_are_refused() -> None:
    policy = policy_of(FULL)
    reference = Reference(policy)
    policy.model.norm.weight.data = torch.empty(0)
    with (
        pytest.raises(ReferenceWeightsError, match=r"norm.weight has shape \(0,\).*with the policy"),
        reference.model(),
    ):
        pass
    assert policy.training


def test_a_policy_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ReferenceWeightsError, match="is_trainable=True"):
        Reference(small_model().requires_grad_(False))
