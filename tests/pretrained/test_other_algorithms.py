"""PPO with a critic, and A*-PO, on a pretrained model with LoRA: three updates each."""

from collections.abc import Callable
from math import isfinite

import pytest
import torch

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig
from tests.support.ragen_trl.pretrained import LORA, Run
from tests.support.ragen_trl.trainers import lottery

pytestmark = pytest.mark.timeout(1200)  # minutes on a busy machine
Make = Callable[..., Run]


def check_updates(done: Run) -> None:
    assert all(gap.largest < 1e-3 for gap in done.gaps) and done.gaps[-1].tokens >= 8
    assert len(done.logged("loss")) == 3 and all(map(isfinite, done.logged("loss")))
    assert max(done.logged("sampling/ratio_deviation_max")) < 1e-3
    after = done.trained()
    assert [name for name, value in after.items() if torch.equal(value, done.before[name])] == []
    assert all(bool(value.isfinite().all()) for value in after.values())


def test_ppo_with_a_critic_that_is_an_adapter(run: Make) -> None:
    """ToyShop, two turns, without thoughts."""
    how = {"num_generations": 1, "per_device_train_batch_size": 2, "critic_batch_size": 2, "critic_learning_rate": 1e-3}
    made = run("ragen/ToyShop-v0", StarPOConfig, advantage="gae", peft_config=LORA, max_actions_per_turn=1, **how)
    critic = made.trainer.critic
    assert critic is not None
    before = [value.detach().clone() for value in critic.parameters]
    check_updates(made.train())
    assert not any(torch.equal(value, old) for value, old in zip(critic.parameters, before, strict=True))
    assert all(map(isfinite, made.logged("critic/value_loss")))


def test_a_star_po(run: Make) -> None:
    """Of a game that any reply can win, since the reference must succeed sometimes; its tokens are compared as well."""
    made = run(
        lottery(draws=2),
        AStarPOConfig,
        AStarPOTrainer,
        peft_config=LORA,
        num_generations=1,
        per_device_train_batch_size=2,
        num_train_seeds=2,
        reference_samples=2,
        max_reference_samples=2,
    )
    check_updates(made.train())
    assert min(made.logged("loss")) >= 0
