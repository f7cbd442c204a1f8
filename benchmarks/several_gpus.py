"""Which model fits on how many GPUs, launched how? From 0.5 to 72 billion parameters, by ``--dry-run``'s arithmetic.

    python benchmarks/several_gpus.py            # seconds: no weights are loaded, and no hub is asked
    python benchmarks/several_gpus.py --smoke    # the same, written to runs/ only

For every model, all weights or LoRA, and 1, 2, 4 or 8 GPUs, it takes the first engine with which a process fits: DDP,
then ZeRO-2, then FSDP2, then FSDP2 with a vLLM server that plays instead. Settings are those of ``model_sizes.py``,
with micro-batches shrunk to one trajectory before the next engine is tried. Writes ``results/several_gpus.json``.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_sizes import AT_ONCE, RANK, SIZES, TOKENS, TRAJECTORIES, Size, qwen, use_of
from records.results import write_result

from ragen_trl.cli.launch import Engine, Launch
from ragen_trl.cli.memory_estimate import MemoryUse, ModelShape, memory_lines, peak_bytes, shape_of

RESULT = Path(__file__).parent / "results" / "several_gpus.json"
GPUS = (1, 2, 4, 8)
MEMORIES = (80, 141)  # GB of a GPU
SPARE = 0.9  # of it: libraries and fragmentation take the rest
LARGER = (
    Size(
        "Qwen2.5-14B-Instruct",
        qwen(5120, 13_824, 48, 40, 8, vocab_size=152_064, tie_word_embeddings=False),
        half=True,
    ),
    Size(
        "Qwen2.5-32B-Instruct",
        qwen(5120, 27_648, 64, 40, 8, vocab_size=152_064, tie_word_embeddings=False),
        half=True,
    ),
    Size(
        "Qwen2.5-72B-Instruct",
        qwen(8192, 29_568, 80, 64, 8, vocab_size=152_064, tie_word_embeddings=False),
        half=True,
    ),
)


@dataclass(frozen=True)
class Way:
    """An engine, and whether a vLLM server on other GPUs plays."""

    engine: Engine
    server: bool = False

    @property
    def name(self) -> str:
        """In the table."""
        return f"{self.engine}, server" if self.server else self.engine


WAYS = (Way("DDP"), Way("ZeRO-2"), Way("FSDP2"), Way("FSDP2", server=True))


def main() -> None:
    """Estimate, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="write to runs/ only")
    options = parser.parse_args()
    models = (*SIZES[1:], *LARGER)
    output = Path("runs/benchmark-several-gpus-smoke.json") if options.smoke else RESULT
    write_result(
        output,
        "python benchmarks/several_gpus.py",
        trajectories=TRAJECTORIES,
        tokens=TOKENS,
        at_once=AT_ONCE,
        memories_gb=MEMORIES,
        spare=SPARE,
        rows=[row for size in models for row in estimated(size)],
    )


def estimated(size: Size) -> list[dict[str, Any]]:
    """The first fitting launch for all weights and for LoRA, on each number of GPUs."""
    shape = shape_of(size.config)
    about = {"model": size.name, "parameters": shape.parameters}
    return [
        {
            **about,
            "lora_r": rank,
            "memory_gb": memory,
            "gpus": {gpus: first_fitting(shape, use_of(size, rank, rows=8), gpus, memory) for gpus in GPUS},
        }
        for memory in MEMORIES
        for rank in (0, RANK)
    ]


def first_fitting(shape: ModelShape, use: MemoryUse, gpus: int, memory: int) -> dict[str, Any] | None:
    """The first way that fits, with the largest micro-batch with which it does; ``None`` if none does."""
    for way in WAYS if gpus > 1 else WAYS[:1]:
        for rows in (8, 4, 2, 1):
            launched = replace(
                use,
                rows=rows,
                rollout_rows=0 if way.server else min(use.rollout_rows, TRAJECTORIES // gpus),
                launch=Launch(way.engine, gpus),
            )
            peak = peak_bytes(memory_lines(shape, launched))
            if peak <= SPARE * memory * 1e9:
                return {"way": way.name, "rows": rows, "peak_gb": peak / 1e9}
    return None


if __name__ == "__main__":
    main()
