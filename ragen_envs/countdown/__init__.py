"""Countdown: make an expression of some numbers that equals a target."""

from ragen_envs.countdown.env import Countdown

__all__ = ["Countdown"]
