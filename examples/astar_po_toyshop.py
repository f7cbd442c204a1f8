r"""Train an agent to shop in ToyShop with A\*-PO.

A\*-PO has two stages: first the untrained model (the *reference*) plays every training goal a few times, which gives
V\*, and then the model is regressed on it. The returns of stage 1 stay in a cache, so a second run does not play them
again.

The embedded model, on a CPU, without network (some minutes):

    python examples/astar_po_toyshop.py

The same in less than a minute, to see that everything works:

    python examples/astar_po_toyshop.py --demonstrations 128 --noise 0 --demo_batch_size 8 --demo_epochs 6 \
        --num_train_seeds 16 --max_steps 2 --per_device_train_batch_size 16 --eval_episodes 16

Any causal language model with a chat template, here with LoRA on one GPU; the reference is then the model without its
adapter, and takes no memory of its own:

    python examples/astar_po_toyshop.py --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5 \
        --per_device_train_batch_size 8 --gradient_accumulation_steps 16 --max_reply_length 200

Options are the fields of `ScriptArguments`, `WarmStartConfig` and `AStarPOConfig`: `--help` lists them, and
`--config file.yaml` reads them from a file. `python -m ragen_trl train --algo a-star-po` does the same and more.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path

from peft import LoraConfig
from trl import TrlParser

from ragen_trl import AStarPOConfig, AStarPOTrainer, WarmStartConfig, evaluate, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

ENV = "ragen/ToyShop-v0"
TRAINING_GOALS = {"split": "train"}
OTHER_GOALS = {"split": "eval"}

GAME = {"env_kwargs": TRAINING_GOALS, "max_turns": 5, "max_actions_per_turn": 1, "max_actions": 5}
# What the embedded model needs instead of the defaults, and what its warm start needs: mistakes that it can learn from.
EMBEDDED = {
    "think": False,
    "max_reply_length": 24,
    "max_completion_length": 700,
    "per_device_train_batch_size": 128,
    "gradient_accumulation_steps": 1,
    "beta2": 1e-2,
    "learning_rate": 5e-4,
    "adam_beta2": 0.99,
    "gradient_checkpointing": False,
    "max_steps": 100,
    "demonstrations": 2000,
    "noise": 0.4,
    "demo_actions_per_turn": 1,
    "demo_epochs": 4.0,
}
EVERY_RUN = {"output_dir": "runs/astar-po-toyshop", "logging_steps": 1, "save_steps": 50, "report_to": "none"}


@dataclass
class ScriptArguments:
    """Options of this script; the others are in `WarmStartConfig` and `AStarPOConfig`."""

    model: str | None = field(
        default=None, metadata={"help": "Folder or hub id of a causal LM; unset: the embedded model, warm-started."}
    )
    lora_r: int = field(default=0, metadata={"help": "LoRA rank; 0 trains all weights."})
    eval_episodes: int = field(default=256, metadata={"help": "Held-out start states of each evaluation."})


def parse(arguments: list[str] | None = None) -> tuple[ScriptArguments, WarmStartConfig, AStarPOConfig]:
    """Read the command line; `arguments` replaces it in tests."""
    parser = TrlParser((ScriptArguments, WarmStartConfig, AStarPOConfig))
    chosen, _ = parser.parse_known_args(arguments)
    parser.set_defaults(**EVERY_RUN, **GAME, **(EMBEDDED if chosen.model is None else {}))
    return parser.parse_args_and_config(arguments)


def main(
    script_args: ScriptArguments, warm_start_args: WarmStartConfig, training_args: AStarPOConfig
) -> AStarPOTrainer:
    """Estimate V*, train, save the model, and evaluate it on goals that it was not trained on."""
    model = script_args.model
    if model is None:
        # A*-PO cannot learn what its reference never does, so the embedded model imitates a careless oracle first.
        model = str(Path(training_args.output_dir) / "warm_start")
        tokenizer = build_tiny_tokenizer(env=ENV, env_kwargs=TRAINING_GOALS)
        network = build_tiny_model(tokenizer, training_args.seed)
        warm_start(network, tokenizer, ENV, training_args, warm_start_args, model)

    peft_config = None
    if script_args.lora_r:
        peft_config = LoraConfig(r=script_args.lora_r, lora_alpha=script_args.lora_r, target_modules="all-linear")
    trainer = AStarPOTrainer(model, env=ENV, args=training_args, peft_config=peft_config)
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)  # stage 1 comes first
    trainer.accelerator.print(f"reference: {trainer.values[0].in_words()}")
    trainer.save_model(str(Path(training_args.output_dir) / "model"))

    evaluation_args = copy.copy(training_args)
    evaluation_args.env_kwargs = OTHER_GOALS
    for policy in ("random", trainer.policy(temperature=1.0), "oracle"):
        result = evaluate(policy, ENV, evaluation_args, episodes=script_args.eval_episodes)
        name = policy if isinstance(policy, str) else "trained"
        trainer.accelerator.print(f"{name:>9}: {result.in_words()}")
    return trainer


if __name__ == "__main__":
    main(*parse())
