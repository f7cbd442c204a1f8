"""One training step of the GPU campaign, in a process of its own: seconds and memory of its rollout and its update.

The weights are random and have the shape of a published model, since a GPU machine may have no network. Such a model
never ends a reply, so that every reply has as many tokens as it may have: the most that a step can take. What it writes
is no action, so that every trajectory has all of its turns. Rewards are made of the sampled tokens, so that groups
differ and the filter has something to choose.
"""

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from learning.measure import peak_memory, reset_peak_memory
from model_sizes import SIZES
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.cli.memory_estimate import memory_lines, phase_bytes, shape_of
from ragen_trl.cli.memory_plan import memory_use
from ragen_trl.policies.adapters import lora
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.trajectory import Trajectory

ENV = "ragen/FrozenLake-v0"
GIB = 2**30
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


@dataclass(frozen=True)
class Step:
    """What a step is.

    Attributes:
        model: Its name on the hub; ``None`` for a small one on the CPU, which is a rehearsal.
        filter_ratio: Share of the groups that are trained on.
        rank: Of LoRA; 0 trains all weights.
        rows: Trajectories of a micro-batch.
        trajectories: Of a rollout, all of which make one update; in groups of 16, or of 4 in a rehearsal.
        turns: Of a trajectory.
        tokens: Of a reply.
        steps: Timed ones; one more goes before them.
        compares_sharing: Whether every second step is computed without sharing what rows begin with in common.
    """

    model: str | None
    filter_ratio: float = 1.0
    rank: int = 0
    rows: int = 16
    trajectories: int = 128
    turns: int = 5
    tokens: int = 100
    steps: int = 2
    compares_sharing: bool = False


class Stopwatch(TrainerCallback):
    """Seconds and peak memory (bytes) of the two halves of every step; a GPU is waited for.

    Attributes:
        rows: A step each: ``rollout``, ``update``, ``rollout_bytes``, ``update_bytes`` and ``shares``.
    """

    def __init__(self, gpu: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self._gpu = gpu
        self._began = math.nan

    def begin(self) -> None:
        """A half begins."""
        if self._gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            reset_peak_memory()
        self._began = time.perf_counter()

    def end(self, half: str) -> None:
        """A half is over."""
        if self._gpu:
            torch.cuda.synchronize()
        memory = torch.cuda.max_memory_allocated() if self._gpu else peak_memory() * 2**20
        self.rows[-1] |= {half: time.perf_counter() - self._began, f"{half}_bytes": memory}

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """The rollout follows."""
        self.rows.append({})
        self.begin()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """The update is over."""
        self.end("update")


class TimedTrainer(StarPOTrainer):
    """A trainer that tells a stopwatch where a rollout ends, and can leave sharing out of every second step."""

    watch: Stopwatch
    compares_sharing = False

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        """As ever."""
        if self.compares_sharing:
            self.shares_prefixes = len(self.watch.rows) % 2 == 0
        self.watch.rows[-1]["shares"] = self.shares_prefixes
        played = super().rollout(starts, envs, policy)
        self.watch.end("rollout")
        lengths = [len(one.token_ids) for one in played]
        self.watch.rows[-1] |= {"longest": max(lengths), "sampled": sum(one.num_reply_tokens for one in played)}
        self.watch.begin()
        return played


def made_of_tokens(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """A reward that differs within a group, by what was sampled."""
    return [(sum(one.token_ids) % 97) / 97 for one in trajectory]


def measure(step: Step) -> dict[str, Any]:
    """Every timed step, medians, tokens, and what ``--dry-run`` says of the memory."""
    gpu = step.model is not None
    model = random_model(step.model)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TimedTrainer(
            model,
            ENV,
            arguments(step, folder),
            reward_funcs=made_of_tokens,
            processing_class=build_tiny_tokenizer(),
            peft_config=lora(step.rank, step.rank),
        )
        trainer.watch, trainer.compares_sharing = Stopwatch(gpu), step.compares_sharing
        trainer.add_callback(trainer.watch)
        trainer.train()
    rows = trainer.watch.rows[1:]  # the first one allocates and compiles
    logged = [row for row in trainer.state.log_history if "rollout/seconds" in row][1:]
    return {
        **asdict(step),
        "parameters": shape_of(model.config).parameters,
        "tokens_of_longest": max(row["longest"] for row in rows),
        **medians(rows),
        "trained_on": statistics.median(row["filter/trajectories_used"] for row in logged),
        "sampled": statistics.median(row["sampled"] for row in rows),
        "estimated_gib": estimate(trainer, model, step, max(row["longest"] for row in rows)),
        "ratio_deviation": max(row["sampling/ratio_deviation_max"] for row in logged),
        "timed": rows,
    }


def random_model(name: str | None) -> PreTrainedModel:
    """A Qwen2 with random weights, which ends no reply by itself; without a name, a small one."""
    tokenizer = build_tiny_tokenizer()
    if name is None:
        sizes = {**SMALL, "num_key_value_heads": 1, "vocab_size": len(tokenizer) + 100, "tie_word_embeddings": True}
    else:
        sizes = next(size.config.to_diff_dict() for size in SIZES if size.name == name)
        sizes.pop("model_type")
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    with torch.device("cpu" if name is None else "cuda"):
        return Qwen2ForCausalLM(Qwen2Config(**{**sizes, **ends}))


def arguments(step: Step, folder: str) -> StarPOConfig:
    """Of a trainer that makes one update of each rollout."""
    gpu = step.model is not None
    return StarPOConfig(
        output_dir=folder,
        env_kwargs={"is_slippery": False},
        think=False,
        max_turns=step.turns,
        max_actions=2 * step.turns,
        max_reply_length=step.tokens,
        max_completion_length=step.turns * (step.tokens + 200),
        per_device_train_batch_size=step.rows,
        gradient_accumulation_steps=step.trajectories // step.rows,
        num_generations=16 if gpu else 4,
        filter_ratio=step.filter_ratio,
        max_steps=step.steps + 1,
        learning_rate=1e-6,
        beta=0.0,
        gradient_checkpointing=False,
        bf16=True,
        use_cpu=not gpu,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def estimate(trainer: StarPOTrainer, model: PreTrainedModel, step: Step, tokens: int) -> dict[str, float]:
    """GiB of both halves by the arithmetic of ``--dry-run``, for trajectories of so many tokens."""
    lines = memory_lines(shape_of(model.config), memory_use(trainer.args, step.rank, tokens))
    return {"rollout": phase_bytes(lines, "rollout") / GIB, "update": phase_bytes(lines, "update") / GIB}


def medians(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the steps that share prefixes, and of those that do not, if there are any.

    Example:
        >>> medians([{"rollout": 1.0, "update": 2.0, "rollout_bytes": 2**30, "update_bytes": 2**31, "shares": True}])
        {'shared': {'rollout': 1.0, 'update': 2.0, 'step': 3.0, 'rollout_gib': 1.0, 'update_gib': 2.0}}
    """
    found: dict[str, Any] = {}
    for name, shares in (("shared", True), ("apart", False)):
        chosen = [row for row in rows if row["shares"] is shares]
        if chosen:
            halves = {half: statistics.median(row[half] for row in chosen) for half in ("rollout", "update")}
            peaks = {f"{half}_gib": max(row[f"{half}_bytes"] for row in chosen) / GIB for half in halves}
            whole = statistics.median(row["rollout"] + row["update"] for row in chosen)
            found[name] = {**halves, "step": whole, **peaks}
    return found


def main() -> None:
    """Measure what the first argument (JSON) describes, and write the result to the file of the second one."""
    result = measure(Step(**json.loads(sys.argv[1])))
    Path(sys.argv[2]).write_text(json.dumps(result, default=float), encoding="utf-8")


if __name__ == "__main__":
    main()
