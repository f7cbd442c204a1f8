"""Products and the catalogues they come from: a product, its price, files of the public data, and made-up shops.

`open_catalog` opens a catalogue by name or path; small ones live in memory, large ones in an SQLite file. The two
bundled catalogues are made in `synthetic/`. This package imports nothing else of the store. Every package above it may
import it: search, goals, store and server.
"""

from webshop_server.catalog.catalog import Catalog, UnknownProductError, open_catalog
from webshop_server.catalog.product import CatalogError

__all__ = ["Catalog", "CatalogError", "UnknownProductError", "open_catalog"]
