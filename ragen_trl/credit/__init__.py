"""Who gets credit for a return: which groups are trained on, and with which advantages.

`selection` is the filter of groups, `estimators` goes from a rollout batch to advantages, `critic` is the value model
of the PPO forms.

Imports: `batching`, `algorithms` and `config`.
"""
