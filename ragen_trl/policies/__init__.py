"""The only code that generates replies: Transformers models with a kept KV cache, vLLM, servers with an API, scripts.

A policy answers the requests of `rollout.loop`. `model_support` says which models can be sampled, `sampling` how a
token is drawn, `stopping` what ends a reply. `scripted` has the random policy and the oracle, `tiny_model` builds the
small model that needs no download, and `gguf_file` makes folders of llama.cpp's files.
"""
