"""Bandit: choose one of two arms that are known only by name."""

from ragen_envs.bandit.env import NAME_SETS, Bandit

__all__ = ["NAME_SETS", "Bandit"]
