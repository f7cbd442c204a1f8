"""Tasks with tools: a shop's orders, a calendar and a tree of files in a local database.

`env` is the environment; `domains` has the rows, tools and tasks of the three domains, and `domains.toml` their words.
"""

from ragen_envs.tools.env import Tools

__all__ = ["Tools"]
