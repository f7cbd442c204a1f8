"""Options of the critic, the value model of the PPO forms. Only an ``advantage`` with a critic reads them."""

from dataclasses import dataclass, field


@dataclass
class CriticOptions:
    """How the critic learns and where its values are used; `StarPOConfig` inherits these fields."""

    whiten_advantages: bool = field(
        default=True, metadata={"help": "Give the critic's advantages mean 0 and std 1 over the trained tokens."}
    )
    bootstrap: str = field(
        default="unseen",
        metadata={
            "help": "Which truncated episodes end with the critic's value instead of 0: 'unseen' (the model was not "
            "told of the limit: context, the environment's own), 'all', or 'none'."
        },
    )
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Learning rate of the critic."})
    critic_warmup_steps: int = field(
        default=0, metadata={"help": "First updates, in which only the critic learns and the policy does not change."}
    )
    value_clip: float | None = field(
        default=0.5, metadata={"help": "How far a value may move from the rollout's before it is clipped; unset: free."}
    )
