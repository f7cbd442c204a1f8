"""A trainer's arguments and options as users of TRL's GRPOTrainer give them, and how long a run is."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOTrainer

from ragen_trl import StarPOTrainer
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.trainers import (
    lottery,
    parameters,
    small_model,
    small_trainer,
)
from tests.support.ragen_trl.trl_runs import RUNS


async def later(completions: Any, **_: Any) -> list[float]:
    return [2.0] * len(completions)


class Judge:
    """An object that TRL awaits."""

    async def __call__(self, completions: Any, **_: Any) -> list[float]:
        return [3.0] * len(completions)


def test_asynchronous_functions_and_objects_are_awaited(tmp_path: Path) -> None:
    """An object with an async ``__call__`` was not awaited."""
    trainer = small_trainer(tmp_path, lottery(), reward_funcs=[later, Judge()], max_steps=1)
    trainer.train()
    row = trainer.state.log_history[0]
    assert [row[f"rewards/{name}/mean"] for name in ("later", "Judge")] == [2.0, 3.0]


def test_trls_trainer_takes_no_argument_that_is_unknown_here() -> None:
    """A new one of TRL's needs a decision."""
    theirs = set(GRPOTrainer.__init__.__code__.co_varnames[1 : GRPOTrainer.__init__.__code__.co_argcount])
    code = StarPOTrainer.__init__.__code__
    ours = set(code.co_varnames[1 : code.co_argcount])
    assert theirs - ours == {"tools", "rollout_func", "environment_factory"}  # an environment and a hook instead


@pytest.mark.parametrize("loss_type", ["bnpo", "luspo", "sapo", "vespo"])
def test_other_losses_of_trl_are_refused_with_those_to_use(tmp_path: Path, loss_type: str) -> None:
    with pytest.raises(OptionError, match=f"^loss_type is '{loss_type}'; choose one of grpo, dapo, dr_grpo, cispo$"):
        small_trainer(tmp_path, lottery(), loss_type=loss_type)


def test_a_model_without_trained_weights_is_refused(tmp_path: Path) -> None:
    """Regression: a saved adapter, loaded without is_trainable, finished a run that learnt nothing."""
    with pytest.raises(OptionError, match="is_trainable=True"):
        small_trainer(tmp_path, lottery(), model=small_model().requires_grad_(False))


# What TRL's own tests of ``GRPOTrainer`` ask, asked of `StarPOTrainer`: the same options and reward functions


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that is not the same for all."""
    return [float(len(ids) % 3) for ids in completion_ids]


@pytest.mark.filterwarnings("ignore:top_")
@pytest.mark.parametrize("name", RUNS)
def test_trains_with_options_of_trl(tmp_path: Path, name: str) -> None:
    """test_train_*: two updates end with a finite loss and other weights than before."""
    model: Any = small_model()
    if name == "reference":
        model.save_pretrained(tmp_path / "model")
        model = str(tmp_path / "model")
    elif name == "precision":  # the head of a model that shares it with the embedding cannot be cast
        config = Qwen2Config(**{**model.config.to_dict(), "tie_word_embeddings": False})
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    before = dict(small_model().named_parameters())
    options = {"learning_rate": 1e-2, "logging_steps": 1, "reward_funcs": [length], **RUNS[name]}
    trainer: Any = small_trainer(tmp_path, lottery(draws=3), model=model, **options)
    trainer.train()
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])
    now = parameters(trainer)
    assert name == "precision" or not any(torch.equal(value, now[key]) for key, value in before.items())
    for key, value in RUNS[name].items():
        shown = getattr(trainer.args, key)
        assert shown == value or key in ("report_to", "logging_strategy", "model_init_kwargs"), key
    if name == "rollouts":
        assert (trainer.state.global_step, trainer.args.groups_per_generation) == (4, 8)
    elif name == "evaluation":
        assert [row["step"] for row in trainer.state.log_history if "eval_success" in row] == [0, 1, 2]
        assert len(list(tmp_path.glob("checkpoint-*"))) <= 2 and trainer.state.best_metric is not None
    elif name == "reference":  # it has not moved
        with trainer.reference.model() as reference:
            assert all(torch.equal(value, before[key]) for key, value in reference.named_parameters())
    elif name == "precision":
        assert trainer.model.lm_head.weight.dtype == torch.float32
        assert trainer.model.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
