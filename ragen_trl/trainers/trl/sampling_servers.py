"""vLLM servers in TRL's ``GRPOTrainer``: several instead of one, asked and waited for by `policies.vllm.servers`.

Relies on the name ``VLLMClient`` in TRL's module ``vllm_generation``; held by ``test_adapter_server.py``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from trl.generation import vllm_generation

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.policies.vllm.servers import connected


@contextmanager
def servers_instead_of_a_client(args: StarPOConfig) -> Iterator[None]:
    """Let a trainer that is made in this block connect to all servers that ``args`` names."""
    theirs = vllm_generation.VLLMClient
    vllm_generation.VLLMClient = partial(connected, adapter_only=args.vllm_adapter_dir is not None)
    try:
        yield
    finally:
        vllm_generation.VLLMClient = theirs
