"""The only code that generates: Transformers models with a kept KV cache, vLLM, servers behind an API, scripts.

A policy answers the requests of `rollout.loop`. `model_support` says which models can be sampled, `stopping` what
ends a reply, `baselines` plays at random or by the oracle.

Imports: `rollout`, `config` and `system`.
"""
