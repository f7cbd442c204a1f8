"""How a model is called in a rollout: which casts of weights autocast keeps."""

import threading

import pytest
import torch

from ragen_trl.policies.model_calls import weights_cast_once
from tests.support.ragen_trl.casts import CountedCasts


def casts_of_three_passes(model: torch.nn.Linear, kept: bool, enabled: bool = True) -> int:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        with CountedCasts(tuple(model.weight.shape)) as counted:
            if kept:
                with weights_cast_once(model):
                    for _ in range(3):
                        model(torch.ones(1, 5))
            else:
                for _ in range(3):
                    model(torch.ones(1, 5))
    return counted.casts


@pytest.mark.parametrize("trained", [True, False])
def test_frozen_weights_are_cast_once_as_trained_ones_are(trained: bool) -> None:
    """Regression: below an adapter autocast cast all weights of the model again for each token of a reply."""
    model = torch.nn.Linear(5, 7).requires_grad_(trained)
    assert casts_of_three_passes(model, kept=False) == (1 if trained else 3)
    assert casts_of_three_passes(model, kept=True) == 1
    assert [value.requires_grad for value in model.parameters()] == [trained, trained]
    assert casts_of_three_passes(model, kept=True, enabled=False) == 0


def test_flags_are_restored_after_an_error_and_left_alone_beside_training() -> None:
    model = torch.nn.Linear(5, 7).requires_grad_(False)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ZeroDivisionError), weights_cast_once(model):
            assert model.weight.requires_grad
            _ = 1 / 0
        assert not model.weight.requires_grad
    seen = []

    def beside() -> None:
        with torch.autocast("cpu", torch.bfloat16), weights_cast_once(model):
            seen.append(model.weight.requires_grad)

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    assert seen == [False]
    with weights_cast_once(model):  # without autocast
        assert not model.weight.requires_grad
