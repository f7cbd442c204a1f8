"""Recorded trajectories, learning curves, and one HTML page about finished runs.

`recorder` writes rollouts during a run and `recorded` reads them; `run_folder` reads a finished run. `report` makes the
page from ``templates/`` and ``static/``, with `result_text`, `figures` and `viewer`.
"""
