"""FrozenLake: walk over ice to the goal, past the holes."""

from ragen_envs.frozen_lake.env import FrozenLake

__all__ = ["FrozenLake"]
