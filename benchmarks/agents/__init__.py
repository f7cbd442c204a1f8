"""What ``pretrained.py`` is made of: games and their settings as data, runs, how a run is carried out, what is kept.

A run is a list of the package's own commands (``python -m ragen_trl …``), which go on where they were stopped.
"""
