"""FrozenLake: walk over ice to the goal, past the holes.

`env` is the environment, `maps` has the lakes and their physics, `oracle` the best moves, `picture` draws a lake. May
be imported by what is above the families (`oracles`, `vector`, `cli`, the package itself) and by benchmarks. It imports
`text_env`, `arguments`, `coordinates` and `pictures`, and no other family.
"""

from ragen_envs.frozen_lake.env import FrozenLake

__all__ = ["FrozenLake"]
