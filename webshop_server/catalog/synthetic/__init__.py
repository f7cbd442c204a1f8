"""The two catalogues that are made here, deterministic by seed: `toy` (96 products) and `synthetic` (any number).

`generator` makes the products of the synthetic shop, `texts` writes about them, and `vocabulary` reads the words from
the TOML files. Everything is drawn with `draws` and named with `opaque_ids`. This package imports a product and its
price. Only `webshop_server.catalog.opening` imports it.
"""
