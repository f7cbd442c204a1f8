"""Options of the critic, the value model of the PPO forms; read with an ``advantage`` that has one."""

from dataclasses import dataclass, field


@dataclass
class CriticOptions:
    """How the critic learns and where it is asked; `StarPOConfig` has these fields, too."""

    whiten_advantages: bool = field(
        default=True, metadata={"help": "Give the critic's advantages mean 0 and std 1 over the trained tokens."}
    )
    bootstrap: str = field(
        default="unseen",
        metadata={
            "help": "Truncated episodes that end with the critic's value instead of 0: 'unseen', where the model was "
            "not told of the limit (context, the environment's own), 'all', or 'none'."
        },
    )
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Learning rate of the critic."})
    critic_warmup_steps: int = field(
        default=0, metadata={"help": "First updates in which the critic learns alone and the policy stays as it is."}
    )
    value_clip: float | None = field(
        default=0.5, metadata={"help": "How far a value may move from the rollout's before it is clipped; unset: free."}
    )
