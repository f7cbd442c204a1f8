"""TextWorld: text adventures. The package `textworld` is imported by the first game; all else works without it."""

from ragen_envs.textworld.env import TextWorld
from ragen_envs.textworld.games import MissingTextWorldError

__all__ = ["MissingTextWorldError", "TextWorld"]
