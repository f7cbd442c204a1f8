"""The only code that generates replies: Transformers models with a kept KV cache, vLLM, servers with an API, scripts.

A policy answers the requests of `rollout.loop`. `model_names` says whether a name leads to a model, `model_support`
which models can be sampled and trained, `model_calls` how one is called, `sampling` how a token is drawn, `stopping`
what ends a reply. `scripted` has the random policy and the oracle, `tiny_model` builds the small model that needs no
download, `gguf_file` makes folders of llama.cpp's files, and `adapters` has what commands train with LoRA.
"""
