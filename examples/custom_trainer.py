r"""Train with an algorithm of your own: hooks of `StarPOTrainer` overridden.

The algorithm here learns only from start states that are neither solved nor hopeless, clips its advantages, and keeps a
running success rate in its checkpoints. What each hook gets and returns: docs/your_own_trainer.md.

The embedded model on a bandit, on a CPU, without network (about a minute):

    python examples/custom_trainer.py

Any causal language model with a chat template:

    python examples/custom_trainer.py --model Qwen/Qwen2.5-0.5B-Instruct --learning_rate 1e-6 \
        --per_device_train_batch_size 8 --gradient_accumulation_steps 8

Options are the fields of `ScriptArguments`, `WarmStartConfig` and `StarPOConfig`: `--help` lists them, and
`--config file.yaml` reads them from a file.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from trl import TrlParser

from ragen_trl import RolloutBatch, StarPOConfig, StarPOTrainer, Trajectory, WarmStartConfig, evaluate, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

ENV = "ragen/Bandit-v0"

GAME = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
# What the embedded model needs instead of the defaults, which are the paper's.
EMBEDDED = {
    "think": False,
    "max_reply_length": 8,
    "max_completion_length": 64,
    "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "learning_rate": 5e-4,
    "adam_beta2": 0.99,
    "beta": 0.0,
    "entropy_coef": 0.0,
    "gradient_checkpointing": False,
    "max_steps": 20,
    "demonstrations": 2000,
    "demo_actions_per_turn": 1,
}
EVERY_RUN = {"output_dir": "runs/custom-trainer", "logging_steps": 1, "save_steps": 10, "report_to": "none"}


def succeeded(trajectory: list[Trajectory], **_: object) -> list[float]:
    """A reward function with weight 0: how a hook learns of the successes of all processes. It is logged, too."""
    return [float(episode.success) for episode in trajectory]


class FrontierTrainer(StarPOTrainer):
    """Groups whose success rate is between `LOWEST` and `HIGHEST`, and advantages between -1 and 3.

    Attributes:
        running_success: Moving average of the success rate, saved with every checkpoint.
    """

    LOWEST, HIGHEST = 0.1, 0.9

    running_success = 0.0

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        """Hook: indices of the groups to train on."""
        rates = rollout.rewards[:, 1].reshape(-1, rollout.group_size).mean(dim=1)  # (groups,)
        self.running_success += 0.1 * (rates.mean().item() - self.running_success)
        good = [group for group, rate in enumerate(rates.tolist()) if self.LOWEST <= rate <= self.HIGHEST]
        return good[: self.args.groups_per_generation]  # there may be more after refills

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """Hook: one advantage for each trajectory."""
        return super().advantages(rollout).clamp(-1.0, 3.0)  # (trajectories,)

    def save_algorithm_state(self, folder: Path) -> None:
        """Hook: write what a resumed run needs besides the policy."""
        super().save_algorithm_state(folder)
        if self.is_world_process_zero():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "frontier.json").write_text(json.dumps({"running_success": self.running_success}))

    def load_algorithm_state(self, folder: Path) -> None:
        """Hook: read what `save_algorithm_state` wrote."""
        super().load_algorithm_state(folder)
        self.running_success = json.loads((folder / "frontier.json").read_text())["running_success"]


@dataclass
class ScriptArguments:
    """Options of this script; the others are in `WarmStartConfig` and `StarPOConfig`."""

    model: str | None = field(
        default=None, metadata={"help": "Folder or hub id of a causal LM; unset: the embedded model, warm-started."}
    )
    eval_episodes: int = field(default=512, metadata={"help": "Held-out start states of the evaluation."})


def parse(arguments: list[str] | None = None) -> tuple[ScriptArguments, WarmStartConfig, StarPOConfig]:
    """Read the command line; `arguments` replaces it in tests."""
    parser = TrlParser((ScriptArguments, WarmStartConfig, StarPOConfig))
    chosen, _ = parser.parse_known_args(arguments)
    parser.set_defaults(
        **EVERY_RUN,
        **GAME,
        scale_rewards="none",  # on a bandit, division by a group's std prefers the worse arm (docs/architecture.md)
        reward_weights=[1.0, 0.0],  # the environment's return, and `succeeded`
        **(EMBEDDED if chosen.model is None else {}),
    )
    return parser.parse_args_and_config(arguments)


def main(
    script_args: ScriptArguments, warm_start_args: WarmStartConfig, training_args: StarPOConfig
) -> FrontierTrainer:
    """Train, and say what came out."""
    model = script_args.model
    if model is None:
        # A model that earns the same everywhere has nothing to compare, so it imitates a noisy oracle first.
        model = str(Path(training_args.output_dir) / "warm_start")
        tokenizer = build_tiny_tokenizer()
        network = build_tiny_model(tokenizer, training_args.seed)
        warm_start(network, tokenizer, ENV, training_args, warm_start_args, model)

    trainer = FrontierTrainer(model, env=ENV, args=training_args, reward_funcs=[succeeded])
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trained = evaluate(trainer.policy(temperature=1.0), ENV, training_args, episodes=script_args.eval_episodes)
    trainer.accelerator.print(f"running success {trainer.running_success:.2f}; held out: {trained.in_words()}")
    return trainer


if __name__ == "__main__":
    main(*parse())
