"""Slot machines: which one to pull, once, is told by what their names symbolise.

`env` is the environment, `picture` draws it. May be imported by what is above the families (`oracles`, `vector`,
`cli`, the package itself) and by benchmarks. It imports `text_env`, `arguments` and `pictures`, and no other family.
"""

from ragen_envs.bandit.env import DEFAULT_NAMES, NAME_SETS, TEST_PAIRS, TRAIN_PAIRS, Bandit

__all__ = ["DEFAULT_NAMES", "NAME_SETS", "TEST_PAIRS", "TRAIN_PAIRS", "Bandit"]
