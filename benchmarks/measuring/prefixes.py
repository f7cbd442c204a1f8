"""One measurement of benchmarks/shared_prefixes.py, in a process of its own, so that it holds no memory of another run.

Trajectories are real play of a noisy oracle on FrozenLake, in the model's own tokens, so that rows share what they
share in training. An update is forward, backward and the optimizer's step; nothing is sampled.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from learning.measure import peak_memory, reset_peak_memory
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ragen_envs import demonstration
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.batching.batch import collate, trajectory_batch
from ragen_trl.config.recipes import ENVIRONMENTS
from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.trajectory import Trajectory

LAKE = "ragen/FrozenLake-v0"


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes:
        work: ``"update"`` of groups of 8, ``"critic"`` (values, then one step on them) or ``"warm start"``.
        model: Folder or hub id; ``None`` for the embedded model.
        rank: Of LoRA; ``None`` trains all weights.
        rows: Trajectories.
        batch_size: Trajectories in one forward and backward pass.
        checkpointing: Gradient checkpointing.
        gpu: On the accelerator, in bf16 mixed precision; otherwise on the CPU in float32.
    """

    work: str
    model: str | None
    rank: int | None = None
    rows: int = 16
    batch_size: int = 8
    checkpointing: bool = False
    gpu: bool = False


def options(case: Case, folder: str) -> StarPOConfig:
    """Of a trainer of the case's model."""
    return StarPOConfig(
        output_dir=folder,
        **ENVIRONMENTS[LAKE],
        think=False,
        beta=0.0,
        advantage="gae" if case.work == "critic" else "group",
        per_device_train_batch_size=case.batch_size,
        gradient_accumulation_steps=case.rows // case.batch_size,
        num_generations=min(8, case.rows),
        gradient_checkpointing=case.checkpointing,
        bf16=case.gpu,
        use_cpu=not case.gpu,
        report_to="none",
        disable_tqdm=True,
    )


def measure(case: Case, shares: bool, repeats: int) -> dict[str, Any]:
    """Seconds of each repetition after a first one, and the peak of memory above what was held before them.

    On a GPU the peak is all that torch had allocated, weights and moments included.
    """
    torch.manual_seed(0)
    if case.model is None:
        tokenizer = build_tiny_tokenizer(env=LAKE)
        model = build_tiny_model(tokenizer, 0)
    else:
        tokenizer = AutoTokenizer.from_pretrained(case.model)
        model = AutoModelForCausalLM.from_pretrained(case.model, dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        args = options(case, folder)
        rows = played(case, args, make_chat(tokenizer, make_turns(LAKE, args), args))
        work = {"update": _updates, "critic": _critic, "warm start": _warm_start}[case.work]
        repeated = work(case, model, tokenizer, args, rows, shares)
        reset_peak_memory()
        held, seconds = 0.0 if case.gpu else peak_memory(), []
        for _ in range(repeats + 1):
            began = _now(case.gpu)
            repeated()
            seconds.append(_now(case.gpu) - began)
    peak = torch.cuda.max_memory_allocated() / 2**20 if case.gpu else peak_memory()
    return {"seconds": seconds[1:], "peak_mib": peak - held}


def _now(gpu: bool) -> float:
    """Seconds of the clock once a GPU is done; on the CPU those that the process computed."""
    if not gpu:
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def played(case: Case, args: StarPOConfig, chat: Chat) -> list[Trajectory]:
    """Noisy oracle play: groups of 8 from one start state each, or demonstrations, each from its own."""
    size = 1 if case.work == "warm start" else min(8, case.rows)

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        return turns.format_reply(demonstration(turns, turns.actions_left, 2, random, 0.5))

    starts = [Start.drawn(WARM_START + row // size, (0, row)) for row in range(case.rows)]
    pool = EnvPool(args)
    found = pool.play(pool.take(env_specs(LAKE, args) * case.rows), ScriptedPolicy(script, chat), starts)
    pool.close()
    return found


def _trainer(
    case: Case, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, args: StarPOConfig, shares: bool
) -> StarPOTrainer:
    class AsAsked(StarPOTrainer):
        def _can_share_prefixes(self) -> bool:
            return shares

    rank = case.rank
    lora = None if rank is None else LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear")
    return AsAsked(model, LAKE, args, processing_class=tokenizer, peft_config=lora)


def _updates(case: Case, *made: Any) -> Callable[[], None]:
    """One optimizer step on all rows, in passes of ``batch_size`` rows."""
    model, tokenizer, args, rows, shares = made
    trainer = _trainer(case, model, tokenizer, args, shares)
    pad_id, size = tokenizer.pad_token_id, case.batch_size
    batches = [trajectory_batch(rows[first : first + size], pad_id) for first in range(0, len(rows), size)]
    device = trainer.accelerator.device
    passes = [{name: value.to(device) for name, value in batch.items()} for batch in batches]
    policy = trainer.model
    policy.train()
    if case.checkpointing:  # which `train` would enable
        policy.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW([value for value in policy.parameters() if value.requires_grad], lr=1e-6)

    def update() -> None:
        for inputs in passes:
            with trainer.accelerator.autocast():
                logprobs, _ = trainer.score(policy, inputs)
            (-(logprobs * inputs["tool_mask"] * inputs["completion_mask"]).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def _critic(case: Case, *made: Any) -> Callable[[], None]:
    """The values of all rows, and one step on them."""
    model, tokenizer, args, rows, shares = made
    critic = _trainer(case, model, tokenizer, args, shares).critic
    assert critic is not None

    def update() -> None:
        values, _ = critic.values(rows, [False] * len(rows))
        mask = collate(rows, tokenizer.pad_token_id)["action_mask"]
        critic.update(rows, torch.ones_like(values), mask, values, clip=None)

    return update


def _warm_start(case: Case, *made: Any) -> Callable[[], None]:
    """A pass over all demonstrations."""
    model, tokenizer, args, rows, shares = made
    config = WarmStartConfig(case.rows, demo_batch_size=case.batch_size, demo_learning_rate=1e-6)
    folder = Path(args.output_dir) / "model"

    def learn() -> None:
        with patch("ragen_trl.trainers.trl.supervised.can_share_prefixes", return_value=shares):
            warm_start(model, tokenizer, LAKE, args, config, folder, demonstrations=rows)

    return learn


def main() -> None:
    """Measure what the argument (JSON) describes, and print the result as the last line."""
    asked = json.loads(sys.argv[1])
    print(json.dumps(measure(Case(**asked["case"]), asked["shares"], asked["repeats"])))


if __name__ == "__main__":
    main()
