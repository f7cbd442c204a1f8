r"""Train an agent on FrozenLake with StarPO-S.

The embedded model, on a CPU, without network (some minutes):

    python examples/starpo_frozen_lake.py

The same in seconds, to see that everything works:

    python examples/starpo_frozen_lake.py --demonstrations 64 --max_steps 2 --eval_episodes 16

Any causal language model with a chat template, here with LoRA on one GPU:

    python examples/starpo_frozen_lake.py --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5 \
        --per_device_train_batch_size 8 --gradient_accumulation_steps 16

Several processes:

    accelerate launch --num_processes 2 examples/starpo_frozen_lake.py --model Qwen/Qwen2.5-0.5B-Instruct

Options are the fields of `ScriptArguments`, `WarmStartConfig` and `StarPOSConfig`: `--help` lists them, and
`--config file.yaml` reads them from a file. `python -m ragen_trl train` does the same and more: it resumes, records
rollouts and writes a report.
"""

from dataclasses import dataclass, field
from pathlib import Path

from peft import LoraConfig
from trl import TrlParser

from ragen_trl import StarPOSConfig, StarPOTrainer, WarmStartConfig, evaluate, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

ENV = "ragen/FrozenLake-v0"

# The game: a 4 x 4 lake with few holes that does not slip, three replies of two moves.
GAME = {
    "env_kwargs": {"is_slippery": False, "frozen_prob": 0.9},
    "max_turns": 3,
    "max_actions_per_turn": 2,
    "max_actions": 6,
}
# What the embedded model needs instead of the defaults, which are the paper's.
EMBEDDED = {
    "think": False,
    "max_reply_length": 24,
    "max_completion_length": 700,
    "per_device_train_batch_size": 128,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "learning_rate": 5e-4,
    "adam_beta2": 0.99,
    "entropy_coef": 0.0,
    "gradient_checkpointing": False,
    "max_steps": 300,
}
EVERY_RUN = {"output_dir": "runs/starpo-frozen-lake", "logging_steps": 1, "save_steps": 50, "report_to": "none"}


@dataclass
class ScriptArguments:
    """Options of this script; the others are in `WarmStartConfig` and `StarPOSConfig`."""

    model: str | None = field(
        default=None, metadata={"help": "Folder or hub id of a causal LM; unset: the embedded model, warm-started."}
    )
    lora_r: int = field(default=0, metadata={"help": "LoRA rank; 0 trains all weights."})
    eval_episodes: int = field(default=512, metadata={"help": "Held-out start states of each evaluation."})


def parse(arguments: list[str] | None = None) -> tuple[ScriptArguments, WarmStartConfig, StarPOSConfig]:
    """Read the command line; `arguments` replaces it in tests."""
    parser = TrlParser((ScriptArguments, WarmStartConfig, StarPOSConfig))
    chosen, _ = parser.parse_known_args(arguments)
    parser.set_defaults(**EVERY_RUN, **GAME, **(EMBEDDED if chosen.model is None else {}))
    return parser.parse_args_and_config(arguments)


def main(script_args: ScriptArguments, warm_start_args: WarmStartConfig, training_args: StarPOSConfig) -> StarPOTrainer:
    """Train, save the model, and compare it with random play and the oracle."""
    model = script_args.model
    if model is None:
        # A model that knows nothing would never succeed, and so never learn: it imitates a noisy oracle first.
        model = str(Path(training_args.output_dir) / "warm_start")
        tokenizer = build_tiny_tokenizer()
        network = build_tiny_model(tokenizer, training_args.seed)
        warm_start(network, tokenizer, ENV, training_args, warm_start_args, model)

    peft_config = None
    if script_args.lora_r:
        peft_config = LoraConfig(r=script_args.lora_r, lora_alpha=script_args.lora_r, target_modules="all-linear")
    trainer = StarPOTrainer(model, env=ENV, args=training_args, peft_config=peft_config)
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(str(Path(training_args.output_dir) / "model"))

    for policy in ("random", trainer.policy(temperature=1.0), "oracle"):
        result = evaluate(policy, ENV, training_args, episodes=script_args.eval_episodes)
        name = policy if isinstance(policy, str) else "trained"
        trainer.accelerator.print(f"{name:>8}: {result.in_words()}")
    return trainer


if __name__ == "__main__":
    main(*parse())
