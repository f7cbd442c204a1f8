r"""A\*-PO over whole trajectories: the trainer, and V\* with its cache on disk.

Stage 1 (`reference_values`) plays the reference from every start state until V\* is known well enough; stage 2
(`trainer`) regresses on it.
"""
