"""What the trainers are made of: checks, checkpoints, the reference, scores, figures."""
