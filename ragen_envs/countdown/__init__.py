"""Countdown: make an expression of some numbers that equals a target.

`env` is the environment, `arithmetic` reads, writes and finds expressions. May be imported by what is above the
families (`oracles`, `cli`, the package itself) and by benchmarks. It imports `text_env`, and no other family.
"""

from ragen_envs.countdown.env import Countdown

__all__ = ["Countdown"]
