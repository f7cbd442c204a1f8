"""FSDP2 with a vLLM server: weights or an adapter are sent, one tensor after the other; a rollout gathers nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ragen_trl.launches import on_two_processes

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left what they logged."""
    path = tmp_path_factory.mktemp("vllm")
    on_two_processes("tests.support.ragen_trl.sharded_vllm", path, timeout=500)
    return path


@pytest.mark.parametrize("weights", ["all", "LoRA", "adapter"])
def test_the_server_samples_with_the_weights_of_the_trainer(folder: Path, weights: str) -> None:
    ranks: list[dict[str, Any]] = [torch.load(folder / f"{weights} {rank}.pt", weights_only=False) for rank in (0, 1)]
    assert not any("error" in made for made in ranks), ranks[0].get("error") or ranks[1].get("error")
    assert ranks[0]["gathered"] == 0
    assert max(ranks[0]["turns"]) != max(ranks[1]["turns"])
    assert len(ranks[0]["metrics"]) == 2
    for row in ranks[0]["metrics"]:
        assert row["sampling/ratio_deviation_max"] < 1e-4 and row["grad_norm"] > 0
