"""All that leans on the inside of TRL and of Transformers' trainer, under public names.

`scoring` has log-probabilities of rows, `evaluation` TRL's evaluation, `adapter` the hooks that our trainers fill,
`synced_reference` what its checkpoints have besides; `supervised` is TRL's ``SFTTrainer``, and `plain` works on any
``GRPOTrainer``. Each point that they rely on is held by a contract test.
"""
