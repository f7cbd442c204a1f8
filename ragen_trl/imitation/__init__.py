"""Supervised fine-tuning before RL: on oracle play (`fine_tuning`) or on episodes that another policy played.

Imports: `policies`, `rollout`, `config` and `system`; no trainer.
"""

from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start

__all__ = ["WarmStartConfig", "warm_start"]
