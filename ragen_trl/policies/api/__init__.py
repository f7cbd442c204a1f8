"""A policy that asks an OpenAI-compatible server: for evaluation and demonstrations, never for training.

`client` sends one request, `answer` reads the response, `cache` keeps answers on disk, `counts` adds up requests,
tokens and costs, `policy` plays with them.
"""
