"""Options of TRL's configuration in short runs: each is set to another value than the default in one of them."""

from typing import Any

# On two groups of four, unless a run says otherwise; "dataset" and "path" say what else a run needs.
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
