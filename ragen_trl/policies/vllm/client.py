"""TRL's client of a vLLM server, which reports failures at once and knows adapters.

Relies on ``VLLMClient`` having ``session``, ``base_url`` and ``model``, for which ``generate`` asks
``/v1/completions``.
"""

import socket
import sys

from requests.adapters import HTTPAdapter  # type: ignore[import-untyped]
from trl.generation.vllm_client import VLLMClient

from ragen_trl.errors import UserError

AT_A_TIME = 64
"""Requests to a server at the same time, as in TRL's client."""

_HEALTH_SECONDS = 10.0  # that an answer about the health may take


class VLLMServerError(UserError, RuntimeError):
    """A vLLM server did not answer, for longer than the run waits for it."""


class ServerClient(VLLMClient):  # type: ignore[misc]  # TRL has no types
    """TRL's client of one server, which reports a failure at once, and knows adapters.

    TRL's tries again for a minute, in which a server may have been started again without the policy's weights.
    """

    def __init__(self, base_url: str, group_port: int = 51216, connection_timeout: float = 0.0) -> None:
        super().__init__(base_url=base_url, group_port=group_port, connection_timeout=connection_timeout)
        adapter = HTTPAdapter(pool_maxsize=AT_A_TIME)
        # A request has no time limit. So the system has to notice a machine that is gone.
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        if sys.platform == "linux":
            seconds = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
            options += [(socket.IPPROTO_TCP, name, value) for name, value in seconds.items()]
        adapter.poolmanager.connection_pool_kw["socket_options"] = options
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, adapter)

    def instance(self) -> str:
        """The process that answers; another one has other weights. ``OSError`` if the server is not well."""
        health = self.session.get(f"{self.base_url}/health", timeout=_HEALTH_SECONDS)
        if health.status_code != 200:
            raise OSError(f"/health answers {health.status_code}")
        return str(self.get_server_info()["instance_id"])

    def load_adapter(self, name: str, folder: str) -> None:
        """Have the server read an adapter in PEFT's format; `VLLMServerError` with its answer if it does not."""
        body = {"lora_name": name, "lora_path": folder}
        answer = self.session.post(f"{self.base_url}/v1/load_lora_adapter", json=body)
        if answer.status_code != 200:
            raise VLLMServerError(
                f"the vLLM server at {self.base_url} does not load the adapter in {folder} ({answer.status_code}: "
                f"{answer.text}); start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment and the options "
                "--enable-lora --max-lora-rank R, R at least the adapter's rank, on a machine that sees this folder "
                "(vllm_adapter_dir)"
            )

    def unload_adapter(self, name: str) -> None:
        """Have the server forget an adapter; it need not know it."""
        self.session.post(f"{self.base_url}/v1/unload_lora_adapter", json={"lora_name": name})
