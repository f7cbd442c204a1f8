"""One measurement of benchmarks/train_step.py, in a process of its own, so that it holds no memory of another run.

Trajectories are made up, not played. The time begins where a rollout ends and goes on to the end of the update
(scores of a reference, the critic's fit, forward, backward and the optimizer). Lengths vary as those of episodes do;
tokens and returns are random.
"""

import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from learning.measure import peak_memory, reset_peak_memory
from peft import LoraConfig
from transformers import Qwen2Config, Qwen2ForCausalLM, TrainerCallback

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trajectory import Trajectory, Turn

MIB = 2**20
# Nothing is played, but a trainer wants an environment.
ENV = "ragen/Bandit-v0"


@dataclass(frozen=True)
class Workload:
    """What is trained, and on what.

    Attributes:
        shape: Arguments of ``Qwen2Config``.
        trajectories: Per rollout, all of which make one update.
        turns: At most; after each turn an episode goes on with probability ``goes_on``.
        goes_on: 1 for episodes that always take all turns.
        tokens: Median of a turn's tokens, about half of them sampled; log-normal with σ = 0.5.
        prompt: Tokens of the first prompt before the first observation.
        gpu: On the accelerator, in bf16 mixed precision; otherwise on the CPU in float32.
        updates: Timed ones; one more goes before them.
    """

    shape: dict[str, int]
    trajectories: int
    turns: int
    goes_on: float
    tokens: int
    prompt: int
    gpu: bool
    updates: int


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Attributes:
        rank: Of the LoRA adapter; ``None`` trains all weights.
        form: ``"group"``, ``"gae"`` or ``"A*-PO"``.
        checkpointing: Gradient checkpointing.
        batch_size: Trajectories per forward and backward pass.
        by_length: Micro-batches of similar lengths; otherwise as TRL splits them.
        filter_ratio: Share of the groups that are trained on.
    """

    rank: int | None = None
    form: str = "group"
    checkpointing: bool = False
    batch_size: int = 4
    by_length: bool = True
    filter_ratio: float = 1.0


class Stopwatch(TrainerCallback):
    """Seconds from the end of a rollout to the end of its update.

    On the CPU these are seconds of CPU time of the process, which has one thread: other processes do not count.
    """

    def __init__(self, gpu: bool) -> None:
        self.seconds: list[float] = []
        self._started = math.nan
        self._gpu = gpu

    def start(self) -> None:
        """The rollout is over."""
        self._started = self._now()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """So is the update."""
        self.seconds.append(self._now() - self._started)

    def _now(self) -> float:
        if not self._gpu:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def made_up(start: Start, workload: Workload, vocabulary: int) -> Trajectory:
    """An episode that was not played; it depends on its sampling seed."""
    random = np.random.default_rng(start.sampling_seed)

    def tokens(count: float) -> tuple[int, ...]:
        return tuple(random.integers(3, vocabulary, size=max(1, round(count))).tolist())

    turns = []
    for number in range(workload.turns):
        length = random.lognormal(math.log(workload.tokens), 0.5)
        reply = tokens(length / 2)
        prompt = tokens(length / 2 + workload.prompt * (number == 0))
        won = bool(random.random() < 0.3)
        info = {"success": won, "format_is_valid": True, "action_is_valid": True, "num_actions": 1}
        turns.append(Turn(prompt, reply, (-1.0,) * len(reply), "?", "!", float(won), info))
        if random.random() >= workload.goes_on:
            break
    return Trajectory(tuple(turns), seed=start.seed, outcome_seed=start.outcome_seed, terminated=True)


def without_play(trainer: type[StarPOTrainer], workload: Workload, by_length: bool, watch: Stopwatch) -> Any:
    """The trainer on made-up episodes, and on TRL's own micro-batches unless ``by_length``."""

    class WithoutPlay(trainer):  # type: ignore[misc, valid-type]
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            played = [made_up(start, workload, len(self.processing_class)) for start in starts]
            watch.start()
            return played

        def _regroup(self, micro_batches: Any) -> Any:
            return super()._regroup(micro_batches) if by_length else micro_batches

    return WithoutPlay


def arguments(setting: Setting, workload: Workload, folder: str) -> StarPOConfig:
    """Of a trainer that makes one update of each rollout."""
    astar = setting.form == "A*-PO"
    options: dict[str, Any] = {
        "output_dir": folder,
        "per_device_train_batch_size": setting.batch_size,
        "gradient_accumulation_steps": workload.trajectories // setting.batch_size,
        "num_generations": 1 if astar else min(16, workload.trajectories // 4),
        "max_steps": workload.updates + 1,
        "max_completion_length": 16 * workload.turns * workload.tokens,
        "gradient_checkpointing": setting.checkpointing,
        "bf16": workload.gpu,
        "use_cpu": not workload.gpu,
        "beta": 0.0,
        "sampler_check": "warn",  # made-up log-probabilities
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    if astar:
        seeds = {"num_train_seeds": workload.trajectories, "reference_samples": 2, "max_reference_samples": 2}
        return AStarPOConfig(**options, **seeds)
    return StarPOConfig(**options, advantage=setting.form, filter_ratio=setting.filter_ratio)


def measure(setting: Setting, workload: Workload) -> dict[str, Any]:
    """Seconds of every timed update, and the peak memory of the run above what its libraries hold.

    On the GPU memory is what torch had allocated, on the CPU what the process held; NaN where the system is not Linux.
    """
    tokenizer = build_tiny_tokenizer()
    held = 0.0 if workload.gpu else _resident()
    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch(workload.gpu)
        trainer_class = AStarPOTrainer if setting.form == "A*-PO" else StarPOTrainer
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(Qwen2Config(**workload.shape, pad_token_id=tokenizer.pad_token_id))
        rank = setting.rank
        lora = LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear") if rank is not None else None
        trainer = without_play(trainer_class, workload, setting.by_length, watch)(
            model,
            ENV,
            arguments(setting, workload, folder),
            processing_class=tokenizer,
            peft_config=lora,
            callbacks=[watch],
        )
        reset_peak_memory()
        trainer.train()
        rows = [row for row in trainer.state.log_history if "rollout/padding" in row][1:]
    peak = torch.cuda.max_memory_allocated() / MIB if workload.gpu else peak_memory() - held
    trained = sum(value.numel() for value in trainer.model.parameters() if value.requires_grad)
    return {
        "seconds": watch.seconds[1:],  # the first update allocates and compiles
        "peak_mib": peak,
        "padding": [row["rollout/padding"] for row in rows],
        "trained_parameters": trained,
        "parameters": sum(value.numel() for value in model.parameters()),
    }


def _resident() -> float:
    """MiB that this process holds now."""
    reset_peak_memory()
    return peak_memory()


def main() -> None:
    """Measure what the argument (JSON) describes, and print the result as the last line."""
    asked = json.loads(sys.argv[1])
    setting, workload = Setting(**asked["setting"]), Workload(**asked["workload"])
    print(json.dumps({**measure(setting, workload), "setting": asdict(setting)}))


if __name__ == "__main__":
    main()
