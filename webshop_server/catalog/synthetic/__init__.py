"""The two catalogues that are made here, deterministic by seed: `toy` (96 products) and `synthetic` (any number).

`generator` makes the products of the synthetic shop, `texts` writes about them, and `vocabulary` reads the words from
the TOML files. Everything is drawn with `draws`. This package imports a product and its
price. Only `webshop_server.catalog.catalog` imports it.
"""
