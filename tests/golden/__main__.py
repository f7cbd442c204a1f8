"""Three tiny trainings whose losses and final weights are printed as JSON: ``python -m tests.golden``.

Before and after a change that should alter nothing, on one machine, the output is the same to the last bit.
"""

import hashlib
import json
import os
import tempfile
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer, warm_start
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


def main() -> None:
    """Imitate the oracle a little, then train with each of the three and print what came out."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tiny_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        model = build_tiny_model(tokenizer, 0, hidden_size=32, num_layers=2)
        config = WarmStartConfig(demonstrations=1500, noise=0.3)
        args = StarPOConfig(output_dir=folder, **SMALL)
        start = str(warm_start(model, tokenizer, ENV, args, config, f"{folder}/start"))

        def run(trainer_class: Any, config_class: Any, lora: bool = False, **options: Any) -> dict[str, Any]:
            adapter = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear") if lora else None
            args = config_class(output_dir=f"{folder}/run", **{**SMALL, **options})
            model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
            trainer = trainer_class(model, ENV, args, processing_class=tokenizer, peft_config=adapter)
            trainer.train()
            digest = hashlib.sha256()
            critic = getattr(trainer, "critic", None)
            weights = [*trainer.model.parameters(), *(critic.network.parameters if critic else ())]
            for value in weights:
                digest.update(value.detach().float().contiguous().numpy().tobytes())
            known = ("loss", "grad_norm", "reward", "critic/value_loss", "kl")
            logged = [{key: row[key] for key in known if key in row} for row in trainer.state.log_history]
            return {"logged": [row for row in logged if "loss" in row], "weights": digest.hexdigest()}

        found = {
            "StarPO, group": run(StarPOTrainer, StarPOConfig),
            "StarPO, bi_level_gae, LoRA": run(StarPOTrainer, StarPOConfig, lora=True, advantage="bi_level_gae"),
            "A*-PO": run(AStarPOTrainer, AStarPOConfig, num_train_seeds=16),
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
