"""Models that see: Qwen2.5-VL and Qwen3-VL, sampled with a kept KV cache.

`processing` makes patches and text of pictures with the model's own image processor, `positions` places their tokens in
three dimensions, `policy` samples. `tiny_model` builds a small model that needs no download.
"""
