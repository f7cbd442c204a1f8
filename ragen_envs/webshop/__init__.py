"""The online store as two environments: WebShop with the store's own pages, ToyShop with pages of a few words.

`local` opens the store in this process, `remote` reaches one by its address: ours, or any with the original's pages.
"""

from ragen_envs.webshop.env import WebShop
from ragen_envs.webshop.recorded import RecordedShop, requests_of
from ragen_envs.webshop.toy_shop import ToyShop

__all__ = ["RecordedShop", "ToyShop", "WebShop", "requests_of"]
