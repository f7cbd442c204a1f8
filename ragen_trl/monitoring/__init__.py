"""What a run looks like from inside: measures of rollouts, and alerts when it collapses.

`collapse_monitor` is a callback for our trainers and for TRL's ``GRPOTrainer``; `alerts` judges logged rows;
`episode_measures`, `reply_measures` and `mutual_information` measure what was played.

Imports: `trainers` and what these import.
"""
