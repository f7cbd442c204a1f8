"""What the critic tests share: made-up episodes, policies of both kinds, and critics of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from peft import PeftModel

from ragen_trl.batching.batch import trajectory_batch, turn_columns
from ragen_trl.credit.critic import Critic
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.fake_vllm import LORA
from tests.support.ragen_trl.trainers import TOKENIZER, with_adapter

PAD = TOKENIZER.pad_token_id
OPTIONS: dict[str, Any] = {
    **dict(per_device_train_batch_size=4, critic_learning_rate=0.01, max_grad_norm=1.0, weight_decay=0.0),
    **dict(adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, gradient_checkpointing=False),
}
# Adam with a large ε: a step in proportion to the gradient.
GENTLE: dict[str, Any] = {"critic_learning_rate": 0.1, "adam_epsilon": 1.0}


def episode(random: np.random.Generator, num_turns: int) -> Trajectory:
    """Turns of 2 to 5 environment tokens and 1 to 4 sampled ones, cut off before another turn of 3."""

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(random.integers(3, len(TOKENIZER), size=random.integers(low, high)).tolist())

    turns = tuple(Turn(tokens(2, 6), tokens(1, 5), (), "?", "!", 0.0) for _ in range(num_turns))
    return Trajectory(turns, seed=0, truncated=True, limit="turns", next_prompt_ids=tokens(3, 4))


def episodes(count: int, seed: int = 0) -> list[Trajectory]:
    """Episodes of one to three turns."""
    random = np.random.default_rng(seed)
    return [episode(random, int(random.integers(1, 4))) for _ in range(count)]


def lora_policy(**settings: Any) -> PeftModel:
    """The small model with an adapter whose matrices are all non-zero."""
    return with_adapter(0.3, **{**LORA, **settings})


def make_critic(policy: Any, awake: bool = True, **settings: Any) -> Critic:
    """A critic of this policy; an ``awake`` one has a head that is not zero."""
    shares, accelerator = (settings.pop(name, None) for name in ("shares_prefixes", "accelerator"))
    options = {**OPTIONS, **settings}  # no configuration, which would reset the state of Accelerate
    args = SimpleNamespace(**options)
    critic = Critic(policy, accelerator or Accelerator(cpu=True), args, PAD, shares_prefixes=bool(shares))
    if awake:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            critic.network.head.weight.normal_(std=0.3, generator=generator)
            critic.network.head.bias.fill_(0.2)
    return critic


def lesson(rows: Sequence[Trajectory], seed: int = 0) -> dict[str, torch.Tensor]:
    """Targets, mask and old values for ``update``: random numbers at sampled tokens."""
    mask = (turn_columns(rows) >= 0).int()
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(mask.shape, generator=generator) * mask
    return {"targets": targets, "mask": mask, "old_values": 0.3 * torch.randn(mask.shape, generator=generator) * mask}


def value_after(critic: Critic, tokens: tuple[int, ...]) -> float:
    """What the critic says of the state after these tokens, in a pass of their own."""
    row = Trajectory((Turn(tokens, (PAD,), (), "?", "!", 0.0),), seed=0)
    with torch.no_grad():
        return critic.network(trajectory_batch([row], PAD))[0, 0].item()


def weights(critic: Critic) -> list[torch.Tensor]:
    """A copy of what the critic trains."""
    return [value.detach().clone() for value in critic.parameters]
