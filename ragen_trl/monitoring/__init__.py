"""Measures of every rollout, and alerts when a run collapses.

`collapse_monitor` is a callback for our trainers and for TRL's ``GRPOTrainer``. `episode_measures`, `reply_measures`
and `mutual_information` measure rollouts; `alerts` finds alerts in logged rows by the conditions in `alert_rules`.
"""
