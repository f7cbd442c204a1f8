"""What people read after a run: recorded trajectories, curves, and one HTML page.

`recorder` writes rollouts while a run goes on, `recorded` reads them, `run_folder` reads a finished run, `report` and
`viewer` make the page from ``templates/`` and ``static/``.

Imports: `monitoring`, `trainers` and `system`.
"""
