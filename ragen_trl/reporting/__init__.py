"""Recorded trajectories, learning curves, and one HTML page about training runs."""
