"""All that leans on the inside of TRL and of Transformers' trainer, under public names.

`scoring` has log-probabilities of rows, `loss_inputs` what TRL's loss reads, `evaluation` TRL's evaluation, with its
figures in `evaluation_totals`; `adapter` has the hooks that our trainers fill, `synced_reference` what its checkpoints
have besides; `supervised` is TRL's ``SFTTrainer``, and `plain` works on any ``GRPOTrainer``. Each point that they rely
on is held by a contract test.
"""
