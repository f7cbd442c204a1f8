"""TextWorld: text adventures with rooms, things and a task, generated or read from a folder.

`env` is the environment, `games` makes game files and finds them, `scenes` plays them, `alfworld` knows the names of
ALFWorld's things and tasks, `thoughts` says why a command is next. May be imported by what is above the families
(`oracles`, `thoughts`, `cli`, the package itself) and by benchmarks. It imports `text_env`, `arguments` and `wording`,
and no other family. The package `textworld` is imported by the first game, so that everything else works without it.
"""

from ragen_envs.textworld.env import TextWorld
from ragen_envs.textworld.games import GameError, MissingTextWorldError

__all__ = ["GameError", "MissingTextWorldError", "TextWorld"]
