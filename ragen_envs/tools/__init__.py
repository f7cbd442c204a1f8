"""Tasks with tools: a shop's orders, a calendar and a tree of files in a local database, and WebShop by calls.

`env` is the environment, `domain` what its three domains share, `orders`, `agenda` and `files` are the domains with
their tools and tasks, `database` keeps the state, `policies` and `thoughts` know the way, `webshop` lets the store be
called. May be imported by what is above it (`oracles`, `cli`, the package itself) and by benchmarks. It imports
`calling` and `webshop`.
"""

from ragen_envs.tools.env import Tools
from ragen_envs.tools.webshop import WebShopTools

__all__ = ["Tools", "WebShopTools"]
