"""Models that see: Qwen2.5-VL and Qwen3-VL, sampled with a kept KV cache."""
