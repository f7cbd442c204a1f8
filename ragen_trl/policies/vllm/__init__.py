"""Replies from vLLM, and how it gets the policy's weights.

`policy` keeps each row's context and asks an engine; `engines` has the two kinds, in this process or on servers.
`servers` asks one server or several and waits for those that fail; `weights` sends them the policy.
"""
