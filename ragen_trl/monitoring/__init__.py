"""Measures of every rollout, and alerts when a run collapses."""
