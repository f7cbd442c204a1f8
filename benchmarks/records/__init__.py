"""What committed JSON keeps of runs, so that results outlive the machine that made them.

``committed`` finds runs by the digest of their settings, whichever JSON holds them; ``measures`` is what is kept of the
logs, for the warning signs and the figures; ``results`` writes what a script measured. May import: ``ragen_trl``.
Imported by: ``learning``, ``agents``, ``findings`` and the scripts.
"""
