r"""The mathematics: pure functions on tensors, without trainers, files or processes.

Group advantages, generalised advantage estimation (GAE), turn-level advantages, filters, losses, A\*-PO's V\*. Each is
checked against numbers worked out by hand and against a slow, obvious loop.

Imports: torch alone.
"""
