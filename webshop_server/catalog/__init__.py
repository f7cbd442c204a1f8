"""Products and the catalogues they come from: files of the public data, and made-up shops."""

from webshop_server.catalog.catalog import Catalog, UnknownProductError, open_catalog
from webshop_server.catalog.product import CatalogError

__all__ = ["Catalog", "CatalogError", "UnknownProductError", "open_catalog"]
