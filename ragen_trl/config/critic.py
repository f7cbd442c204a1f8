"""Options of the critic, the value model of the PPO forms. Only an ``advantage`` with a critic reads them."""

from dataclasses import dataclass

from ragen_trl.config.play import option

CRITIC_SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine", "inverse_sqrt")
"""Schedules of Transformers (``lr_scheduler_type``) that need no more than a warm-up and a number of steps."""


@dataclass
class CriticOptions:
    """How the critic learns and where its values are used; `StarPOConfig` inherits these fields."""

    whiten_advantages: bool = option(True, "Give the critic's advantages mean 0 and std 1 over the trained tokens.")
    bootstrap: str = option(
        "unseen",
        "Which truncated episodes end with the critic's value instead of 0: 'unseen' (the model was not "
        "told of the limit: context, one that only the environment knows, all of tool calls), 'all', or 'none'.",
    )
    critic_learning_rate: float = option(1e-5, "Learning rate of the critic.")
    critic_batch_size: int | None = option(
        None,
        "Trajectories per optimizer step of the critic, all processes together (32 in RAGEN); unset: as many "
        "steps a pass over a rollout as the policy makes.",
    )
    critic_epochs: int | None = option(
        None, "The critic's passes over a rollout; unset: as many as the policy's (num_iterations)."
    )
    critic_lr_scheduler_type: str = option(
        "constant", f"Schedule of the critic's learning rate: one of {', '.join(CRITIC_SCHEDULES)}."
    )
    critic_lr_warmup_rollouts: int = option(
        0, "First rollouts, over which the critic's learning rate rises from 0; not with 'constant'."
    )
    critic_warmup_steps: int = option(
        0, "First updates, in which only the critic learns and the policy does not change."
    )
    value_clip: float | None = option(
        0.5, "How far a value may move from the rollout's before it is clipped; unset: free."
    )
