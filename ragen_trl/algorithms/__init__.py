"""The mathematics: pure functions on tensors, each tested against numbers by hand and a slow, obvious loop."""
