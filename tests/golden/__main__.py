"""Tiny trainings of every kind: ``python -m tests.golden --out before.pt``, a change, ``… --compare before.pt``.

On one machine a change that should alter nothing gives the same weights to the last bit, and one that alters the order
of sums the same to 1e-6. The exit status is 1 if weights or logged figures differ by more than ``--within``.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOSConfig, StarPOTrainer, warm_start
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

ENV = "ragen/FrozenLake-v0"
SMALL: dict[str, Any] = {
    **dict(think=False, max_turns=3, max_actions_per_turn=2, max_reply_length=8, max_completion_length=200),
    **dict(per_device_train_batch_size=8, gradient_accumulation_steps=2, num_generations=4, max_steps=3),
    **dict(env_kwargs={"is_slippery": False}, learning_rate=1e-3, seed=3, beta=0.0, logging_steps=1),
    **dict(save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, bf16=False),
    **dict(gradient_checkpointing=False, dataloader_pin_memory=False),
}
TWICE: dict[str, Any] = {"num_iterations": 2, "max_steps": 4}
WINDOW: dict[str, Any] = {"window_turns": 1, "max_turns": 4}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"advantage": name} for name in ("group", "gae", "turn_gae", "bi_level_gae", "gigpo", "mt_grpo")},
    "critic as an adapter": {"advantage": "bi_level_gae", "lora": True},
    "KL, LoRA": {"beta": 0.05, "lora": True},
    "two iterations": TWICE,
    "four updates": {
        **dict(steps_per_generation=4, gradient_accumulation_steps=1, per_device_train_batch_size=4, max_steps=8),
    },
    "windows": {**TWICE, **WINDOW},
    "windows, KL, LoRA": {**WINDOW, "beta": 0.05, "lora": True},
    "ratios of sequences": {**TWICE, "importance_sampling_level": "sequence"},
    "dapo": {**TWICE, "loss_type": "dapo"},
    "dr_grpo": {**TWICE, "loss_type": "dr_grpo"},
    "cispo": {**TWICE, "loss_type": "cispo", "epsilon_high": 5.0},
    "dual clip, entropy": {**TWICE, "delta": 1.5, "entropy_coef": 0.01},
    "StarPO-S": {"config": StarPOSConfig, "filter_ratio": 0.5, "gradient_accumulation_steps": 4},
    "A*-PO": {"config": AStarPOConfig, "num_train_seeds": 16},
    "A*-PO, KL, LoRA": {"config": AStarPOConfig, "num_train_seeds": 16, "kl_coef": 0.1, "lora": True},
    "A*-PO, windows": {"config": AStarPOConfig, "num_train_seeds": 16, "window_turns": 1},
}
LOGGED = ("loss", "grad_norm", "reward", "entropy", "kl", "critic/value_loss", "astar/residual")


def run(start: str, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Train a little; the trained weights, the critic's too, and a row of figures for each update."""
    own = dict(options)
    config, lora = own.pop("config", StarPOConfig), own.pop("lora", False)
    adapter = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear") if lora else None
    args = config(output_dir=str(folder), **{**SMALL, **own})
    torch.manual_seed(1)  # of new adapters
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    kind: Any = AStarPOTrainer if config is AStarPOConfig else StarPOTrainer
    trainer = kind(model, ENV, args, processing_class=build_tiny_tokenizer(), peft_config=adapter)
    trainer.train()
    values = [*trainer.model.parameters(), *(trainer.critic.parameters if trainer.critic else ())]
    weights = torch.cat([value.detach().float().flatten() for value in values if value.requires_grad])
    rows = [[row.get(key, 0.0) for key in LOGGED] for row in trainer.state.log_history if "loss" in row]
    return {"weights": weights, "logged": torch.tensor(rows, dtype=torch.float64)}


def main() -> None:
    """Imitate the oracle a little, then train in every way and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for what came out")
    parser.add_argument("--compare", type=Path, help="such a file, of an earlier call")
    parser.add_argument("--within", type=float, default=1e-6, help="the largest difference that is none")
    parser.add_argument("--only", nargs="*", default=list(CASES), help="only these cases")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    before = torch.load(asked.compare) if asked.compare else {}
    found, worst = {}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = build_tiny_tokenizer()
        model = build_tiny_model(tokenizer, 0, hidden_size=32, num_layers=2)
        config = WarmStartConfig(demonstrations=1500, noise=0.3)
        args = StarPOConfig(output_dir=folder, **SMALL)
        start = f"{folder}/start"
        if before:  # the same weights, whatever made them
            model.load_state_dict(before["start"])
            model.save_pretrained(start)
        else:
            warm_start(model, tokenizer, ENV, args, config, start)
        for name, options in CASES.items():
            if name not in asked.only:
                continue
            found[name] = run(start, Path(folder, "run"), options)
            if name in before:
                apart = [float((found[name][key] - before[name][key]).abs().max()) for key in ("weights", "logged")]
                worst = max(worst, *apart)
                print(f"{name}: weights differ by {apart[0]:.1e}, figures by {apart[1]:.1e}", flush=True)
            else:
                print(f"{name}: {found[name]['logged'][:, 0].tolist()}", flush=True)
        if asked.out:
            weights = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
            torch.save({**found, "start": weights}, asked.out)
    if before:
        print(f"largest difference: {worst:.1e}")
    sys.exit(worst > asked.within)


if __name__ == "__main__":
    main()
