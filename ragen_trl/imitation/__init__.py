"""Supervised fine-tuning before RL: on demonstrations, or on episodes that another policy played."""

from ragen_trl.config.options import WarmStartConfig
from ragen_trl.imitation.fine_tuning import warm_start

__all__ = ["WarmStartConfig", "warm_start"]
