"""A real vLLM server on the CPU, in processes of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from trl.generation.vllm_client import VLLMClient
from trl.scripts.vllm_serve import ScriptArguments, build_command

_START = 600  # seconds


class VLLMProcess:
    """A server with the options of ``trl vllm-serve``, without compilation.

    Args:
        model: Folder of the model.
        log: File that gets what it writes.
    """

    def __init__(self, model: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._model, self._log = model, log
        self.start()

    def start(self) -> None:
        """Begin to start it; `client` waits."""
        asked = ScriptArguments(
            str(self._model), host="127.0.0.1", port=self._port, dtype="float32", enforce_eager=True
        )
        options = build_command(asked)
        options = options[options.index("serve") + 1 :]
        # Not ``vllm serve``, which asks for the version of a distribution named vllm; the one for the CPU has another.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *options]
        environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def client(self) -> VLLMClient:
        """Connect, once it is up."""
        until = time.monotonic() + _START
        while time.monotonic() < until:
            try:
                return VLLMClient(self.url, connection_timeout=1)
            except OSError:  # the ConnectionError of requests
                assert self._process.poll() is None, self._log.read_text(encoding="utf-8")[-3000:]
        raise AssertionError(self._log.read_text(encoding="utf-8")[-3000:])

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)
