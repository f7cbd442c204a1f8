"""Success on fixed, held-out start states, with confidence intervals and pass@k.

`evaluator` plays one policy; `intervals` and `pass_at_k` are the statistics. `comparison` compares the policies of
`players` as a `plan` says, keeps their episodes in a `folder` and writes `tables`.

Imports: `policies`, `rollout`, `config` and `system`; no trainer. Imported by: `reporting` and `cli`.
"""
