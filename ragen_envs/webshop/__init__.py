"""The online store as two environments: WebShop with the store's own pages, ToyShop with pages of a few words.

`local_store` opens the store in this process, `client` reaches one by its address; `classic` plays on the pages of a
server without our JSON API, such as the original.
"""

from ragen_envs.webshop.env import WebShop
from ragen_envs.webshop.recorded import RecordedShop, requests_of
from ragen_envs.webshop.toy_shop import ToyShop

__all__ = ["RecordedShop", "ToyShop", "WebShop", "requests_of"]
