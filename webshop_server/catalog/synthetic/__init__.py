"""The two catalogues that are made here, deterministic by seed: `toy` (96 products) and `synthetic` (any number).

`generator` makes the products of the synthetic shop, `texts` writes about them, and the five departments hold its
vocabulary. Everything is drawn with `draws` and named with `opaque_ids`. Only `webshop_server.catalog.opening` imports
this package; it imports a product and its price, and nothing else.
"""
