"""The online store as two environments: WebShop with the store's own pages, ToyShop with pages of a few words.

In order of import: `client` speaks HTTP, `session` plays one episode over its JSON API, `pages` reads HTML and
`classic` plays an episode on it where a server has nothing else, `local_store` opens the store in this process (the
only module that imports `webshop_server`, and only when a store is opened), `env` and `toy_shop` are the environments,
`reading` reads pages, `recorded` plays back episodes of people, `policies` plays, `shoppers` has the customer of
demonstrations, and `thoughts` explains them. May be imported by what is above the families (`oracles`, `thoughts`,
`cli`, the package itself) and by benchmarks. It imports `text_env` and `arguments`, and no other family.
"""

from ragen_envs.webshop.env import WebShop
from ragen_envs.webshop.recorded import RecordedShop, requests_of
from ragen_envs.webshop.toy_shop import ToyShop

__all__ = ["RecordedShop", "ToyShop", "WebShop", "requests_of"]
