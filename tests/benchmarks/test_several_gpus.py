"""benchmarks/several_gpus.py takes the first launch that fits, and its table says so."""

import pytest
import several_gpus
from pages.models import launches_table

from ragen_trl.cli.memory_estimate import MemoryUse, ModelShape

SHAPE = ModelShape(10, 1000, 2000, 1000, 10, 1000, 30_000, 10**9, 9 * 10**8, 10**6)
USE = MemoryUse(rows=8, tokens=100, rollout_rows=32, mixed=True, triton=True)


def test_engines_are_tried_from_the_one_that_divides_least() -> None:
    """A billion parameters: 20 GB and more with DDP, 5.4 with ZeRO-2 on eight GPUs, 3.6 with FSDP2."""
    tried = {
        (gpus, memory): several_gpus.first_fitting(SHAPE, USE, gpus, memory)
        for gpus, memory in ((1, 30), (2, 30), (8, 15), (8, 5), (8, 1))
    }
    ways = {key: found and found["way"] for key, found in tried.items()}
    assert ways == {(1, 30): "DDP", (2, 30): "DDP", (8, 15): "ZeRO-2", (8, 5): "FSDP2", (8, 1): None}
    for (_, memory), found in tried.items():
        assert found is None or found["peak_gb"] <= several_gpus.SPARE * memory


@pytest.mark.parametrize("size", several_gpus.LARGER, ids=lambda size: size.name)
def test_the_shapes_of_large_models_have_the_published_number_of_parameters(size: several_gpus.Size) -> None:
    published = {"14B": 14_770_033_664, "32B": 32_763_876_352, "72B": 72_706_203_648}
    name = size.name.split("-")[1]
    assert several_gpus.shape_of(size.config).parameters == published[name]


def test_the_table_has_a_row_a_model_and_a_column_a_number_of_gpus() -> None:
    fits = {"way": "FSDP2, server", "rows": 4, "peak_gb": 62.8}
    about = {"model": "A", "memory_gb": 80, "gpus": {"1": None, "2": fits}}
    rows = [{**about, "lora_r": 0}, {**about, "lora_r": 64}]
    settings = {"trajectories": 128, "tokens": 2048, "at_once": 32, "spare": 0.9, "commit": "0123456789ab"}
    shown = launches_table({**settings, "memories_gb": [80], "rows": rows})
    assert "| model | trained | 1 GPU | 2 GPUs |" in shown
    assert "| A | LoRA, r = 64 | – | FSDP2, server: 63, 4 |" in shown
