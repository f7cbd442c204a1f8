"""From trajectories to tensors, in one place: a rollout's batch, its micro-batches, and what losses divide by.

`batch` pads, `rollout_batch` holds what was sampled for one update, `segments` makes several training rows of one
episode, `micro_batches` puts rows of like length together, `loss_normalization` computes the totals of an update.

Imports: `algorithms`, `config`, `rollout` and `trajectory`.
"""
