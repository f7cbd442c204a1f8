"""One measurement of benchmarks/rollout_memory.py, in a process of its own: the most that a rollout or an update holds.

What is counted is the resident memory of the process, above what it held after a small run of the same kind, so that
the libraries do not count. All trajectories have the same length, which is the length that is estimated for.
"""

import gc
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from learning.measure import peak_memory, reset_peak_memory
from peft import get_peft_model
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from measuring.processes import resident
from measuring.rollout_candidates import Endless, Metronome
from measuring.updates import ENV
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.cli.memory_estimate import memory_lines, phase_bytes, shape_of
from ragen_trl.cli.memory_plan import memory_use
from ragen_trl.policies.adapters import lora
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory, Turn

MIB = 2**20
SHAPE = {
    "vocab_size": 4000,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
SMALL = {**SHAPE, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
REPLY = 8  # tokens


@dataclass(frozen=True)
class Case:
    """What is run.

    Attributes:
        phase: ``"rollout"`` or ``"update"``.
        rows: Trajectories of the rollout; in an update, of a micro-batch.
        tokens: Of a trajectory, about.
        turns: Of a trajectory.
        at_once: ``rollout_batch_size``.
        rank: Of the LoRA adapter; 0 trains all weights.
        mixed: In bfloat16 mixed precision.
        checkpointing: Gradient checkpointing.
        critic: Train one, too.
        words: Of the vocabulary, if not those of ``SHAPE``.
        key_value_heads: If not those of ``SHAPE``.
    """

    phase: str
    rows: int
    tokens: int
    turns: int = 4
    at_once: int | None = None
    rank: int = 0
    mixed: bool = False
    checkpointing: bool = False
    critic: bool = False
    words: int = SHAPE["vocab_size"]
    key_value_heads: int = SHAPE["num_key_value_heads"]


def measure(case: Case) -> dict[str, Any]:
    """Peak and estimate, in MiB, and the parts of the estimate."""
    run = partial(_rollout if case.phase == "rollout" else _update, case)
    run(Qwen2Config(**SMALL), tokens=40)
    gc.collect()
    reset_peak_memory()
    held = resident("self")
    tokens, prompt = run(_config(case), tokens=case.tokens)
    measured = {"longest": tokens, "prompt": prompt, "peak_mib": peak_memory() - held}
    return {**asdict(case), **measured, **estimate(case, tokens, prompt)}


def estimate(case: Case, tokens: int, prompt: int) -> dict[str, Any]:
    """What `--dry-run` says, for trajectories of so many tokens with prompts of at most so many."""
    use = memory_use(_arguments(case, "unused"), case.rank, tokens, prompt)
    lines = memory_lines(shape_of(_config(case)), use)
    if case.phase == "rollout":  # the optimizer has not made a step
        lines = [line for line in lines if line.name != "AdamW"]
    parts = {line.name: line.bytes / MIB for line in lines if line.phase in ("always", case.phase)}
    return {"estimate_mib": phase_bytes(lines, case.phase) / MIB, "parts_mib": parts}


def _config(case: Case) -> Qwen2Config:
    return Qwen2Config(**{**SHAPE, "vocab_size": case.words, "num_key_value_heads": case.key_value_heads})


def _model(config: Qwen2Config) -> PreTrainedModel:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


def _arguments(case: Case, folder: str, **options: Any) -> StarPOConfig:
    return StarPOConfig(
        **{
            "output_dir": folder,
            "max_steps": 1,
            "per_device_train_batch_size": case.rows,
            "num_generations": case.rows,
            "gradient_accumulation_steps": 1,
            "gradient_checkpointing": case.checkpointing,
            "bf16": case.mixed,
            "use_cpu": True,
            "beta": 0.0,
            "advantage": "gae" if case.critic else "group",
            "rollout_batch_size": case.at_once,
            "save_strategy": "no",
            "report_to": "none",
            "sampler_check": "warn",  # the log-probabilities are made up
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **options,
        }
    )


def _rollout(case: Case, config: Qwen2Config, tokens: int) -> tuple[int, int]:
    """Play; replies are short, since it is the prompts that make contexts long."""
    model: Any = _model(config)
    adapter = lora(case.rank, case.rank)
    if adapter is not None:
        model = get_peft_model(model, adapter)
    chat = Endless(build_tiny_tokenizer())
    message = "x" * max(1, tokens // case.turns - REPLY - len(chat.start("")))
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16, enabled=case.mixed)
    policy = TransformersPolicy(model, chat, Sampling(REPLY), autocast)
    # Each with another beginning: rows that begin alike would share the pass that reads it.
    envs = [Metronome(case.turns, f"{row:04d}{message}") for row in range(case.rows)]
    played = play(envs, policy, [Start(0, 0, row) for row in range(case.rows)], batch_size=case.at_once)
    prompt = max(len(turn.prompt_ids) for one in played for turn in one.turns)
    return max(len(one.token_ids) for one in played), prompt


def _update(case: Case, config: Qwen2Config, tokens: int) -> tuple[int, int]:
    """Two updates, since AdamW makes its moments in the first one."""
    each = tokens // case.turns // 2
    info = {"success": True, "format_is_valid": True, "action_is_valid": True, "num_actions": 1}

    class MadeUp(StarPOTrainer):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> list[Trajectory]:
            ids = (5,) * each
            pays = [float(start.sampling_seed % 2) for start in starts]
            turn = [Turn(ids, ids, (-1.0,) * each, "?", "!", pay, info) for pay in pays]
            return [
                Trajectory((one,) * case.turns, start.seed, start.outcome_seed, terminated=True)
                for one, start in zip(turn, starts, strict=True)
            ]

    with tempfile.TemporaryDirectory() as folder:
        # No trajectory after its first prompt is longer than this, and none is cut.
        args = _arguments(case, folder, max_steps=2, max_completion_length=2 * each * case.turns)
        tokenizer = build_tiny_tokenizer()
        trainer = MadeUp(_model(config), ENV, args, processing_class=tokenizer, peft_config=lora(case.rank, case.rank))
        trainer.train()
    return 2 * each * case.turns, each


def main() -> None:
    """Measure what the argument (JSON) describes, and print the result as the last line."""
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
