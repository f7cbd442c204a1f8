"""The parts of the scripts that measure: what they compare, what their processes run, and what several of them need.

The questions themselves, their command lines and what they write are in the scripts next to this folder. Training
questions have their own parts in ``learning``. May import: the three packages and ``learning.measure``. Imported by:
the scripts and the tests.
"""
