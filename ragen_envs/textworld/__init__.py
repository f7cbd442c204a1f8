"""TextWorld: text adventures. The package `textworld` is imported by the first game; all else works without it."""

from ragen_envs.textworld.env import TextWorld

__all__ = ["TextWorld"]
