"""Tasks with tools: a shop's orders, a calendar and a tree of files in a local database.

`domain` is what the three domains share; `orders`, `agenda` and `files` have their tools and tasks.
"""

from ragen_envs.tools.env import Tools

__all__ = ["Tools"]
