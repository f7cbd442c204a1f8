"""Replies from vLLM, in this process or on servers, and how it gets the policy's weights."""
