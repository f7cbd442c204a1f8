"""Seconds and memory of a training step on a GPU, with random weights of a published model's shape (no download).

    python benchmarks/gpu_step.py [--sizes 0.5B 1.5B] [--cases all quarter lora] [--rows 16] [--limit-gib 22] [--smoke]

A step is 128 trajectories of 5 turns of 100 sampled tokens in FrozenLake, in groups of 16: a rollout, then one update,
of all groups or the quarter with the most spread. Random weights end no reply, so every step is as long as steps can
be; rewards come from the sampled tokens, so groups differ. The first step allocates and compiles and does not count.
``lora`` is rank 64, merged for rollouts. ``--limit-gib`` caps what torch may take, to stand for a smaller card.
``--smoke`` is a tiny model on the CPU.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from record import place, table, write
from transformers import Qwen2Config, Qwen2ForCausalLM, TrainerCallback

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.tiny_model import build_tiny_tokenizer

SHAPES = {
    "0.5B": (896, 4864, 24, 14, 2),
    "1.5B": (1536, 8960, 28, 12, 2),
    "3B": (2048, 11008, 36, 16, 2),
    "tiny": (64, 128, 2, 2, 1),
}
FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
CASES: dict[str, dict[str, Any]] = {
    "all": {},
    "quarter": {"filter_ratio": 0.25},
    "lora": {"filter_ratio": 0.25, "merge_lora": True},
}


class Watch(TrainerCallback):
    """Seconds and peak memory of rollouts and updates."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.began = 0.0

    def lap(self, name: str) -> None:
        """End a part of a step."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.steps[-1][f"{name}_gib"] = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.reset_peak_memory_stats()
        self.steps[-1][name] = time.perf_counter() - self.began
        self.began = time.perf_counter()

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """A rollout begins."""
        self.steps.append({})
        self.began = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """An update is over."""
        self.lap("update")


class Timed(StarPOTrainer):
    """StarPO with a stopwatch in its hook `rollout`."""

    watch: Watch

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        """As in StarPO."""
        played = super().rollout(starts, envs, policy)
        self.watch.lap("rollout")
        self.watch.steps[-1]["sampled_tokens"] = sum(one.num_reply_tokens for one in played)
        self.watch.steps[-1]["tokens"] = sum(len(one.token_ids) for one in played)
        return played


def spread(trajectory: Any, **_: Any) -> list[float]:
    """A reward of the sampled tokens."""
    return [(sum(one.token_ids) % 97) / 97 for one in trajectory]


def measure(size: str, case: str, rows: int, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    """Medians of a step's parts over the counted steps."""
    tiny, tokenizer = size == "tiny", build_tiny_tokenizer()
    torch.manual_seed(0)
    ends = dict(bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    shape = {**dict(zip(FIELDS, SHAPES[size], strict=True)), **ends, "tie_word_embeddings": True}
    with torch.device("cpu" if tiny else "cuda"):
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer) + 100 if tiny else 151_936, **shape))
    turns, tokens, group = (2, 8, 4) if tiny else (5, 100, 16)
    trajectories, rows = (16, 4) if tiny else (128, rows)
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {
            **dict(output_dir=folder, env_kwargs={"is_slippery": False}, think=False, max_turns=turns),
            **dict(max_actions=2 * turns, max_reply_length=tokens, max_completion_length=turns * (tokens + 200)),
            **dict(per_device_train_batch_size=rows, gradient_accumulation_steps=trajectories // rows),
            **dict(num_generations=group, max_steps=steps + 1, learning_rate=1e-6, beta=0.0, bf16=True, use_cpu=tiny),
            **dict(gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to="none"),
            **dict(disable_tqdm=True, dataloader_pin_memory=False),
        }
        args = StarPOConfig(**{**given, **CASES[case], **options})
        lora = LoraConfig(r=64, lora_alpha=64, target_modules="all-linear") if case == "lora" else None
        trainer = Timed(
            model, "ragen/FrozenLake-v0", args, reward_funcs=spread, processing_class=tokenizer, peft_config=lora
        )
        trainer.watch = Watch()
        trainer.add_callback(trainer.watch)
        trainer.train()
    counted = trainer.watch.steps[1:]
    found = {name: statistics.median(row[name] for row in counted) for name in counted[0]}
    found["step"] = statistics.median(row["rollout"] + row["update"] for row in counted)
    deviations = [row.get("sampling/ratio_deviation_max", 0.0) for row in trainer.state.log_history]
    return {**found, "rows": rows, "deviation_nats": max(deviations), "steps": counted}


def main() -> None:
    """Measure every size and case; the result is written after each, since a lent machine may be taken back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["0.5B"], choices=[name for name in SHAPES if name != "tiny"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rows", type=int, default=16, help="trajectories a pass")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--limit-gib", type=float)
    parser.add_argument("--option", nargs="*", default=[], help="fields of StarPOConfig, NAME=JSON")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    options = {name: json.loads(value) for name, _, value in (text.partition("=") for text in asked.option)}
    if asked.limit_gib:
        torch.cuda.set_per_process_memory_fraction(
            asked.limit_gib * 2**30 / torch.cuda.get_device_properties(0).total_memory
        )
    found: dict[str, dict[str, Any]] = {}
    for size in ["tiny"] if asked.smoke else asked.sizes:
        for case in asked.cases:
            try:
                found[f"{size} {case}"] = measure(size, case, asked.rows, asked.steps, options)
            except torch.OutOfMemoryError as error:
                found[f"{size} {case}"] = {"out_of_memory": str(error)[:200]}
            command = f"python benchmarks/gpu_step.py {' '.join(sys.argv[1:])}"
            shown = shown_of(found, asked.limit_gib)
            write(place("gpu", asked.smoke, asked.out), command, limit_gib=asked.limit_gib, cases=found, table=shown)


def shown_of(found: dict[str, dict[str, Any]], limit: float | None) -> dict[str, Any]:
    """One row a case."""
    lines = []
    for name, row in found.items():
        times = [f"{row[part]:.2f}" if part in row else "" for part in ("rollout", "update", "step")]
        memory = " / ".join(f"{row[f'{part}_gib']:.1f}" for part in ("rollout", "update") if f"{part}_gib" in row)
        speed = f"{row['sampled_tokens'] / row['rollout']:,.0f}" if "step" in row else "out of memory"
        lines.append([name, limit or "none", row.get("rows", ""), *times, memory, speed])
    columns = ["case", "GiB allowed", "rows a pass", "rollout s", "update s", "step s", "peak GiB: rollout / update"]
    return table([*columns, "sampled tokens/s"], lines, "Medians of the counted steps.")


if __name__ == "__main__":
    main()
