r"""A\*-PO over whole trajectories: the trainer, and V\* with its cache on disk."""
