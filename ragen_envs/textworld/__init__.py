"""TextWorld: text adventures with rooms, things and a task, generated or read from a folder.

The package `textworld` is imported by the first game, so everything else works without it.
"""

from ragen_envs.textworld.env import TextWorld
from ragen_envs.textworld.games import GameError, MissingTextWorldError

__all__ = ["GameError", "MissingTextWorldError", "TextWorld"]
