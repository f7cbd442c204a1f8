"""The two catalogues that are made here, deterministic by seed: `toy` (96 products) and `synthetic` (any number)."""
