"""Small trainers for the trainer tests: a real ``StarPOTrainer`` on the tiny model, a few steps long."""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ragen_envs import AgentTurns, TextEnv
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.tiny_model import build_tiny_model, build_tiny_tokenizer

TOKENIZER = build_tiny_tokenizer()
LAKE = "ragen/FrozenLake-v0"

SMALL: dict[str, Any] = {
    "think": False,
    "max_turns": 2,
    "max_reply_length": 6,
    "max_completion_length": 120,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 4,
    "max_steps": 2,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "disable_tqdm": True,
    "beta": 0.0,
    "dataloader_pin_memory": False,
}


def small_model(seed: int = 0) -> PreTrainedModel:
    """Two layers of width 32: enough to have every kind of parameter."""
    return build_tiny_model(TOKENIZER, seed, hidden_size=32, num_layers=2)


_ARGUMENTS = ("reward_funcs", "callbacks", "peft_config")


def small_trainer(
    folder: Path,
    env: Any = LAKE,
    config: type[StarPOConfig] = StarPOConfig,
    trainer: Any = StarPOTrainer,
    model: Any = None,
    **changes: Any,
) -> StarPOTrainer:
    """A trainer of the small model; ``changes`` are options, or arguments of the trainer."""
    arguments = {name: changes.pop(name) for name in _ARGUMENTS if name in changes}
    args = config(output_dir=str(folder), **{**SMALL, **changes})
    return trainer(model or small_model(), env, args, processing_class=TOKENIZER, **arguments)


def parameters(trainer: StarPOTrainer) -> dict[str, torch.Tensor]:
    """A copy of all parameters."""
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


class Lottery(TextEnv):
    """Pays ``win`` or nothing, by the outcome seed alone; every reply is a valid action."""

    def __init__(self, win: float = 1.0) -> None:
        super().__init__()
        self.win = win

    @property
    def instruction(self) -> str:
        """Nothing to understand."""
        return "Say something."

    def _start(self, options: Any) -> str:
        return f"Ticket {self.np_random.integers(1_000_000)}"

    def _parse_action(self, text: str) -> str:
        return text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        won = bool(self.outcome_random.random() < 0.5)
        return "drawn", self.win * won, True, {"success": won, "action_is_effective": True}


class AnyReply(AgentTurns):
    """Takes whatever the model says as one action, so that an untrained model plays without penalties."""

    def step(self, action: str) -> Any:
        """Read every reply as an answer."""
        return super().step(self.format_reply(["ticket"]))


def lottery(win: float = 1.0) -> Any:
    """A maker of lotteries."""
    return lambda: AnyReply(Lottery(win), think=False, max_turns=1, max_actions=1, max_actions_per_turn=1)
