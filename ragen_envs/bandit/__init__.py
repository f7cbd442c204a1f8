"""Bandit: choose one of several arms that are known only by name."""

from ragen_envs.bandit.env import NAME_SETS, TEST_PAIRS, TRAIN_PAIRS, Bandit

__all__ = ["NAME_SETS", "TEST_PAIRS", "TRAIN_PAIRS", "Bandit"]
