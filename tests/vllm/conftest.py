"""Tests with a real vLLM on the CPU. ``make test-vllm`` asks for them; ``make test`` has no vLLM and passes them over.

Two settings make them possible, both of vLLM's CPU backend: oneDNN's packed matrices take no new weights, so they are
switched off before an engine starts; and a float32 checkpoint would be held in bfloat16, with log-probabilities too
coarse to be compared, so float32 is the only precision on offer here.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from trl.generation.vllm_client import VLLMClient
from trl.scripts.vllm_serve import ScriptArguments, build_command

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from tests.support.ragen_trl.trainers import SMALL

ASKED_FOR = "RAGEN_TEST_VLLM" in os.environ
if not ASKED_FOR:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model whose attention heads have a size that vLLM's CPU kernels know, and its tokenizer."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = build_tiny_tokenizer()
    build_tiny_model(tokenizer, hidden_size=64, num_layers=2, num_heads=2).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def cpu_engine() -> Iterator[None]:
    """The CPU backend in float32, with matrices that can be overwritten."""
    import torch
    import vllm._custom_ops
    from vllm.platforms.cpu import CpuPlatform

    patch = pytest.MonkeyPatch()
    patch.setattr(vllm._custom_ops, "_supports_onednn", False)
    patch.setattr(CpuPlatform, "supported_dtypes", [torch.float32])
    yield
    patch.undo()


@pytest.fixture(scope="session")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the saved model, with the options of ``trl vllm-serve``, without compilation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = ScriptArguments(str(folder), host="127.0.0.1", port=port, dtype="float32", enforce_eager=True)
    options = build_command(asked)
    options = options[options.index("serve") + 1 :]
    # Not ``vllm serve``, which asks for the version of a distribution named vllm; the one for the CPU has another.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *options]
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("server") / "log"
    with log.open("a", encoding="utf-8") as written:
        process = subprocess.Popen(command, env=environment, stdout=written, stderr=written, start_new_session=True)
    until, client = time.monotonic() + 600, None
    while client is None:
        assert process.poll() is None and time.monotonic() < until, log.read_text(encoding="utf-8")[-3000:]
        with suppress(OSError):  # the ConnectionError of requests
            client = VLLMClient(url, connection_timeout=1)
    yield url
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)


@pytest.fixture(scope="module")
def train(
    folder: Path, cpu_engine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., StarPOTrainer]]:
    """Makes a trainer that plays with an engine in this process; one engine lives at a time."""
    made: list[StarPOTrainer] = []

    def make(env: Any, config: Any = StarPOConfig, trainer: Any = StarPOTrainer, **changes: Any) -> StarPOTrainer:
        if made:
            shut_down(made.pop())
        arguments = {name: changes.pop(name) for name in ("peft_config", "reward_funcs") if name in changes}
        args = config(output_dir=str(tmp_path_factory.mktemp("run")), **{**SMALL, "use_vllm": True, **changes})
        made.append(trainer(str(folder), env, args, **arguments))
        return made[0]

    yield make
    shut_down(made.pop())


def shut_down(trainer: StarPOTrainer) -> None:
    """Give the engine's memory back."""
    trainer.vllm_generation.llm.llm_engine.engine_core.shutdown()
    trainer._engine = None
    del trainer.vllm_generation.llm
    gc.collect()
