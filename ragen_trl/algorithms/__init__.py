r"""The mathematics: pure functions on tensors, without trainers, files or processes.

Here are group advantages, generalised advantage estimation (GAE), turn-level advantages, filters, losses and A\*-PO's
V\*. The tests compare each of them with numbers worked out by hand and with a slow, obvious loop.
"""
