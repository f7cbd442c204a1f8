"""Success on fixed, held-out start states, with confidence intervals and pass@k.

`evaluator` plays a model, the random policy or the oracle; `intervals` and `pass_at_k` are the statistics; `tables` and
`folder` write what came out.

Imports: `policies`, `rollout`, `config` and `system`; no trainer.
"""
