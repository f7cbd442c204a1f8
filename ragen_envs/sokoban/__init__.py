"""Sokoban: push every box onto a target."""

from ragen_envs.sokoban.env import NEW_VOCABULARY, Sokoban

__all__ = ["NEW_VOCABULARY", "Sokoban"]
