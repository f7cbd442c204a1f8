"""Whatever happens around a training, it ends as a run to which nothing happened, bit for bit."""

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig
from transformers import TrainerCallback

import ragen_trl
from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer
from ragen_trl.training.launch import load_weights
from tests.support.ragen_trl.astar_runs import SMALL_STAGE
from tests.support.ragen_trl.trainers import SMALL, TOKENIZER, limits_of, lottery, parameters, small_model

HOOKS = ("rollout", "select_groups", "advantages", "policy_loss")
PARTS: dict[str, Any] = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
TWICE: dict[str, Any] = {"steps_per_generation": 2, "per_device_train_batch_size": 4, "max_steps": 4, "save_steps": 2}
FOUR = {"num_train_seeds": 4, "per_device_train_batch_size": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "windows, refills": {"filter_ratio": 0.5, "max_refills": 1, "window_turns": 1, "beta": 0.1, **TWICE},
    "gae": {"advantage": "gae", **PARTS},
    "turn_gae": {"advantage": "turn_gae", **TWICE},
    "bi_level_gae, LoRA": {"advantage": "bi_level_gae", "lora": True, **PARTS},
    "gigpo": {"advantage": "gigpo", "num_train_seeds": 3, **PARTS},
    "mt_grpo, LoRA": {"advantage": "mt_grpo", "lora": True, "num_iterations": 2, "max_steps": 4, "save_steps": 2},
    "A*-PO": {"astar": True, "refresh_steps": 1, **FOUR},
    "A*-PO, LoRA": {"astar": True, "lora": True, "window_turns": 1, **FOUR},
}


def halves(completions: list[str], **_: Any) -> list[float]:
    return [len(one) % 2 / 2 for one in completions]


def watched(kind: type[StarPOTrainer]) -> type[StarPOTrainer]:
    """Calls ``happens`` with the name of a hook before it runs."""

    def hook(name: str) -> Any:
        def run(self: Any, *given: Any) -> Any:
            self.happens(name)
            return getattr(kind, name)(self, *given)

        return run

    return type("Watched", (kind,), {"happens": lambda *_: None, **{name: hook(name) for name in HOOKS}})


def made(folder: Path, astar: bool = False, lora: bool = False, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A trainer, and what its caller gave it."""
    settings = {**SMALL, "learning_rate": 1e-2, "save_strategy": "steps", "save_steps": 1, "num_eval_seeds": 2}
    settings |= {"max_reply_length": 2, **limits_of(lottery(draws=2))}
    config, kind = (AStarPOConfig, AStarPOTrainer) if astar else (StarPOConfig, StarPOTrainer)
    given = {
        "args": config(output_dir=str(folder), **{**settings, **(SMALL_STAGE if astar else {}), **options}),
        "reward_funcs": [halves],
        "peft_config": LoraConfig(r=2, target_modules=["q_proj"]) if lora else None,
    }
    return watched(kind)(small_model(), lottery(draws=2), processing_class=TOKENIZER, **given), given


def outcome(trainer: Any) -> dict[str, Any]:
    """All that a training leaves: weights, the critic's, V*, and what was logged of its updates."""
    found: dict[str, Any] = {name: value.tolist() for name, value in parameters(trainer).items()}
    found["critic"] = trainer.critic and [value.tolist() for value in trainer.critic.parameters]
    found["values"] = {task: values.starts for task, values in getattr(trainer, "values", {}).items()}
    names = ("step", "loss", "grad_norm", "reward")
    return {**found, "log": [[row.get(name) for name in names] for row in trainer.state.log_history if "loss" in row]}


def evaluate(trainer: Any) -> None:
    def chance() -> Any:
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()

    before, mode = chance(), trainer.model.training
    trainer.evaluate()
    ragen_trl.evaluate(trainer.policy(), lottery(draws=2), trainer.args, episodes=2)
    assert (chance(), trainer.model.training) == (before, mode)


class Meanwhile(TrainerCallback):
    """Evaluates, and trains another trainer, between the first two updates."""

    def __init__(self, *trainers: Any) -> None:
        self.trainers = trainers

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 1:
            evaluate(self.trainers[0])
            self.trainers[1].train()


@pytest.mark.parametrize("name", OPTIONS)
def test_what_happens_around_a_training_changes_nothing_in_it(name: str, tmp_path: Path) -> None:
    """Evaluations, interrupts in every hook, chance that others use, another training, a resume and a rollback."""
    options = OPTIONS[name]
    plain, _ = made(tmp_path / "plain", **options)
    plain.train()
    expected, last = outcome(plain), plain.args.max_steps
    trainer, given = made(tmp_path / "run", **options)
    before, _ = copy.deepcopy(given), evaluate(trainer)
    at: tuple[str, int] = ("", 0)

    def happens(hook: str) -> None:
        if trainer.model.training:  # no evaluation
            torch.rand(3), np.random.rand(2), random.random()
        if (hook, trainer.state.global_step) == at:
            raise KeyboardInterrupt

    trainer.happens = happens
    for hook in HOOKS:
        at = (hook, 0)
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        assert all(value.grad is None for value in trainer.model.parameters())
    at = ("policy_loss", last - 1)
    trainer.add_callback(Meanwhile(trainer, made(tmp_path / "other", max_steps=1)[0]))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    at = ("", 0)
    trainer.train(resume_from_checkpoint=True)
    assert outcome(trainer) == expected
    for option, value in vars(before.pop("args")).items():
        assert option == "distributed_state" or getattr(given["args"], option) == value
    assert {one: given[one] for one in before} == before
    if options.get("lora") or options.get("astar"):
        first, end = (tmp_path / "plain" / f"checkpoint-{step}" for step in (plain.args.save_steps, last))
        resumed, _ = made(tmp_path / "resumed", **options)
        load_weights(resumed, end)  # as the monitor rolls back
        resumed.load_algorithm_state(end)
        resumed.train(resume_from_checkpoint=str(first))
        assert outcome(resumed) == expected
