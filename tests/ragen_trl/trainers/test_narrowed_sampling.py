"""Tokens that are cut off before sampling make training off-policy, and the trainer says so."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.config.validation import OffPolicySamplingWarning
from ragen_trl.policies.sampling import Sampling, sample_tokens
from tests.support.ragen_trl.trainers import lottery, small_trainer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_p": 0.9}, "^top_p is 0.9: replies"),
        ({"top_k": 20}, "^top_k is 20: replies"),
        ({"top_p": 0.5, "top_k": 3}, "^top_p is 0.5 and top_k is 3: replies"),
    ],
)
def test_the_trainer_says_that_a_cut_is_off_policy(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    """Regression: accepted without a word."""
    with pytest.warns(OffPolicySamplingWarning, match=said + ".*set temperature below 1"):
        small_trainer(tmp_path, lottery(), **options)


def test_a_temperature_is_on_policy(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OffPolicySamplingWarning)
        assert small_trainer(tmp_path, lottery(), temperature=0.7).args.temperature == 0.7


@pytest.mark.parametrize(("options", "bias"), [({}, 0.0), ({"temperature": 0.5}, 0.0), ({"top_p": 0.8}, 0.1042)])
def test_a_cut_moves_the_policy_even_where_all_rewards_are_equal(options: dict[str, float], bias: float) -> None:
    """The mean of the score function is 0 on-policy. With a cut, every update pushes the other tokens down.

    Their probability under the logits is (1 + 1/e) / (e² + e + 1 + 1/e + √e) = 0.1042.
    """
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5], dtype=torch.float64)
    sampling = Sampling(max_tokens=1, **options)
    count = 200_000
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, logprobs = (drawn[0] for drawn in sample_tokens(logits[None], uniforms[None], sampling))
    trained = (logits / sampling.temperature).softmax(-1)
    torch.testing.assert_close(logprobs.double(), trained.log()[tokens], atol=1e-5, rtol=0)
    score = tokens.bincount(minlength=5) / count - trained  # mean gradient of the log-probability by the logits
    assert float(-score[score < 0].sum()) == pytest.approx(bias, abs=1e-4)
