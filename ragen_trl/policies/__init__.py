"""The only code that generates replies: Transformers models with a kept KV cache, vLLM, API servers, scripts."""
