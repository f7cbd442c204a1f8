"""What do larger models take? Settings from 135 million to 7 billion parameters, and the memory by ``--dry-run``.

    python benchmarks/model_sizes.py            # seconds: no weights are loaded, and no hub is asked
    python benchmarks/model_sizes.py --smoke    # the same, written to runs/ only

The shapes are those of the models' ``config.json``, written down here, since configurations need no hub. The arithmetic
is that of ``ragen_trl/cli/memory_estimate.py``; ``rollout_memory.py`` compared it with what processes held. Learning
rates are the usual ones for such sizes; only the first model's were tried here. Writes ``results/model_sizes.json``.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from records.results import write_result
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config

from ragen_trl import StarPOSConfig
from ragen_trl.cli.memory_estimate import MemoryUse, memory_lines, peak_bytes, phase_bytes, shape_of
from ragen_trl.cli.memory_plan import memory_use

RESULT = Path(__file__).parent / "results" / "model_sizes.json"
TRAJECTORIES, TOKENS, AT_ONCE, RANK = 128, 2048, 32, 64
_GIB = 2**30


@dataclass(frozen=True)
class Size:
    """A model and how it is trained.

    Attributes:
        name: On the hub.
        config: Its shape.
        rows: Trajectories of a micro-batch, with all weights and with LoRA.
        rates: Learning rates, with all weights and with LoRA.
        half: Whether LoRA's base is loaded in bfloat16.
    """

    name: str
    config: PretrainedConfig
    rows: tuple[int, int] = (8, 8)
    rates: tuple[float, float] = (1e-6, 1e-5)
    half: bool = False


def qwen(hidden: int, intermediate: int, layers: int, heads: int, pairs: int, **changes: Any) -> Qwen2Config:
    """A configuration of Qwen2.5: width, feed-forward width, layers, heads, and heads of keys and values."""
    shape = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    shape |= {"num_attention_heads": heads, "num_key_value_heads": pairs}
    return Qwen2Config(**{"vocab_size": 151_936, "tie_word_embeddings": True, **shape, **changes})


_SMOL = LlamaConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)
SIZES = (
    Size("SmolLM2-135M-Instruct", _SMOL, rates=(1e-5, 1e-4)),
    Size("Qwen2.5-0.5B-Instruct", qwen(896, 4864, 24, 14, 2)),
    Size("Qwen2.5-1.5B-Instruct", qwen(1536, 8960, 28, 12, 2)),
    Size("Qwen2.5-3B-Instruct", qwen(2048, 11_008, 36, 16, 2), rows=(4, 8), half=True),
    Size(
        "Qwen2.5-7B-Instruct",
        qwen(3584, 18_944, 28, 28, 4, vocab_size=152_064, tie_word_embeddings=False),
        rows=(2, 4),
        half=True,
    ),
)


def main() -> None:
    """Estimate, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="write to runs/ only")
    options = parser.parse_args()
    output = Path("runs/benchmark-model-sizes-smoke.json") if options.smoke else RESULT
    write_result(
        output,
        "python benchmarks/model_sizes.py",
        trajectories=TRAJECTORIES,
        tokens=TOKENS,
        at_once=AT_ONCE,
        rows=[estimated(size, rank) for size in SIZES for rank in (0, RANK)],
    )


def estimated(size: Size, rank: int) -> dict[str, Any]:
    """Settings and memory of a model with all weights trained (rank 0) or with LoRA."""
    rows = size.rows[rank > 0]
    shape = shape_of(size.config)
    lines = memory_lines(shape, use_of(size, rank, rows))
    held = sum(line.bytes for line in lines if line.phase == "always")
    phases = {phase: phase_bytes(lines, phase) - held for phase in ("rollout", "update")}
    return {
        "model": size.name,
        "parameters": shape.parameters,
        "trained_parameters": rank * shape.linear_widths or shape.parameters,
        "lora_r": rank,
        "learning_rate": size.rates[rank > 0],
        "rows": rows,
        "micro_batches": TRAJECTORIES // rows,
        "weights": "bfloat16" if is_half(size, rank) else "float32",
        "gib": {
            "held": held / _GIB,
            **{name: n / _GIB for name, n in phases.items()},
            "peak": peak_bytes(lines) / _GIB,
        },
    }


def use_of(size: Size, rank: int, rows: int) -> MemoryUse:
    """How a size is trained on one process, in micro-batches of so many trajectories."""
    with tempfile.TemporaryDirectory() as folder:
        args = StarPOSConfig(
            output_dir=folder,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=TRAJECTORIES // rows,
            rollout_batch_size=AT_ONCE,
            bf16=True,
            use_cpu=True,
            model_init_kwargs={"dtype": "bfloat16"} if is_half(size, rank) else None,
        )
    return replace(memory_use(args, rank, TOKENS), triton=True)


def is_half(size: Size, rank: int) -> bool:
    """Whether the weights are loaded in bfloat16."""
    return size.half and rank > 0


if __name__ == "__main__":
    main()
