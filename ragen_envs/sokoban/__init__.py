"""Sokoban: push every box onto a target.

`env` is the environment, `rooms` draws rooms, `levels` reads level files, `solver` finds shortest solutions, `picture`
draws a room. May be imported by what is above the families (`oracles`, `vector`, `cli`, the package itself) and by
benchmarks. It imports `text_env`, `arguments`, `coordinates` and `pictures`, and no other family.
"""

from ragen_envs.sokoban.env import NEW_VOCABULARY, Sokoban

__all__ = ["NEW_VOCABULARY", "Sokoban"]
