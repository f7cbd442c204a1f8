"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training."""
