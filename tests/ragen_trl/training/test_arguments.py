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
from tests.support.ragen_trl.trainers import lottery, parameters, small_model, small_trainer


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


def test_a_model_without_trained_weights_is_refused(tmp_path: Path) -> None:
    """Regression: a saved adapter, loaded without is_trainable, finished a run that learnt nothing."""
    with pytest.raises(OptionError, match="is_trainable=True"):
        small_trainer(tmp_path, lottery(), model=small_model().requires_grad_(False))


# What TRL's own tests of ``GRPOTrainer`` ask, asked of `StarPOTrainer`: the same options and reward functions


# Each option of TRL's configuration has another value than its default in one run. On two groups of four, unless a run
# says otherwise.
RUNS: dict[str, dict[str, Any]] = {
    "rollouts": {
        "num_generations": 2, "generation_batch_size": 16, "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2, "num_iterations": 2, "temperature": 1.3, "top_p": 0.9, "top_k": 50,
        "max_completion_length": 60, "shuffle_dataset": False, "scale_rewards": "batch", "max_steps": 4,
    },
    "optimiser": {
        "learning_rate": 1e-3, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-7},
        "warmup_steps": 1, "optim": "adamw_torch", "weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.9,
        "adam_epsilon": 1e-6, "max_grad_norm": 0.5, "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False}, "logging_steps": 2, "logging_first_step": True,
        "disable_tqdm": False, "torch_empty_cache_steps": 1, "skip_memory_metrics": False, "seed": 7,
        "run_name": "a name", "report_to": "tensorboard", "entropy_coef": 0.1,
    },
    "reference": {
        "beta": 0.1, "ref_model_mixup_alpha": 0.5, "ref_model_sync_steps": 1,
        "model_init_kwargs": {"dtype": "float32"}, "trust_remote_code": True,
        "epsilon": 0.1, "epsilon_high": 0.3, "delta": 4.0, "use_bias_correction_kl": False,
    },
    "sequence": {"loss_type": "dapo", "importance_sampling_level": "sequence"},
    "several rewards": {"reward_weights": [1.0, 0.5]},
    "precision": {"bf16": True, "cast_lm_head_to_fp32": True},
    "evaluation": {
        "do_eval": True, "eval_strategy": "steps", "eval_steps": 1, "eval_delay": 1, "eval_on_start": True,
        "per_device_eval_batch_size": 4, "num_generations_eval": 2, "eval_accumulation_steps": 1, "num_eval_seeds": 4,
        "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "save_only_model": True,
        "load_best_model_at_end": True, "metric_for_best_model": "eval_success", "greater_is_better": True,
        "steps_per_generation": 2, "gradient_accumulation_steps": 2, "dataloader_drop_last": True,
        "dataloader_num_workers": 1, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 3,
        "dataloader_pin_memory": False, "logging_nan_inf_filter": False, "logging_strategy": "epoch",
    },
}  # fmt: skip


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
        # Checkpoints are deleted by this trainer, when a newer one is whole, and not by Transformers.
        assert shown == value or key in ("report_to", "logging_strategy", "model_init_kwargs", "save_total_limit"), key
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
