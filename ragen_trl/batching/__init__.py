"""From trajectories to tensors, in this one place: a rollout's batch, its micro-batches, and what losses divide by."""
