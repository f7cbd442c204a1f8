"""A policy behind an OpenAI-compatible server: for evaluation and demonstrations, never for training.

`client` sends one request, `answer` reads what came back, `cache` keeps answers on disk, `counts` adds up what was
asked and what it cost, `policy` plays with them.

Imports: `rollout` and `system`.
"""
