"""How environments are stepped, as far as the configuration says it."""

DEFAULT_WORKERS = 128
"""Threads at most that step waiting environments side by side."""
