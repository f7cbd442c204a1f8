"""Slot machines: which one to pull, once, is told by what their names symbolise."""

from ragen_envs.bandit.env import DEFAULT_NAMES, NAME_SETS, TEST_PAIRS, TRAIN_PAIRS, Bandit

__all__ = ["DEFAULT_NAMES", "NAME_SETS", "TEST_PAIRS", "TRAIN_PAIRS", "Bandit"]
