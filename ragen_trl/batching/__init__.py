"""From trajectories to tensors, in this one place: a rollout's batch, its micro-batches, and what losses divide by.

`batch` pads. `rollout_batch` holds what was sampled for one update. `segments` makes several training rows of one
episode. `micro_batches` puts rows of similar length together. `loss_normalization` computes an optimizer step's totals.
`returns` and `rewards` have the rewards of trajectories.
"""
