"""Options of TRL's configuration in short runs: each is set to another value than the default in one of them."""

from typing import Any

# On two groups of four, unless a run says otherwise; "dataset" and "path" say what else a run needs.
RUNS: dict[str, dict[str, Any]] = {
    "rollouts": {
        "num_generations": 2, "generation_batch_size": 16, "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2, "num_iterations": 2, "temperature": 1.3, "top_p": 0.9, "top_k": 50,
        "max_completion_length": 60, "shuffle_dataset": False, "scale_rewards": "batch", "max_steps": 4,
        "log_completions": True, "num_completions_to_print": 1, "log_unique_prompts": True,
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
        "beta": 0.1, "sync_ref_model": True, "ref_model_mixup_alpha": 0.5, "ref_model_sync_steps": 1,
        "model_init_kwargs": {"dtype": "float32"}, "trust_remote_code": True,
        "epsilon": 0.1, "epsilon_high": 0.3, "delta": 4.0, "use_bias_correction_kl": False,
    },
    "sequence": {"loss_type": "dapo", "importance_sampling_level": "sequence"},
    "several rewards": {"reward_weights": [1.0, 0.5], "multi_objective_aggregation": "normalize_then_sum"},
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

# TRL or Transformers alone reads them; the tests only make a configuration with them.
PASSED_ON = (
    *"router_aux_loss_coef vllm_model_impl vllm_server_host vllm_server_port".split(),
    *"vllm_group_port vllm_gpu_memory_utilization".split(),
    *"vllm_importance_sampling_cap log_completions_hub_repo optim_args optim_target_modules fp16".split(),
    *"bf16_full_eval fp16_full_eval tf32 activation_checkpointing activation_checkpointing_kwargs".split(),
    *"torch_compile_mode use_liger_kernel liger_kernel_config use_cache log_on_each_node log_level".split(),
    *"log_level_replica project trackio_space_id trackio_bucket_id trackio_static_space_id".split(),
    *"save_on_each_node enable_jit_checkpoint push_to_hub hub_token hub_private_repo hub_model_id".split(),
    *"hub_strategy hub_always_push hub_revision ignore_data_skip".split(),
    *"restore_callback_states_from_checkpoint accelerator_config dataloader_multiprocessing_context".split(),
    *"dataloader_in_order ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers".split(),
    *"ddp_static_graph ddp_backend ddp_timeout deepspeed debug".split(),
    *"full_determinism fsdp fsdp_config".split(),
)

ELSEWHERE = {
    "output_dir": "small_trainer",
    "use_cpu": "small_trainer",
    "chat_template_kwargs": "test_templates",
    "max_steps": "test_arguments",
    "num_train_epochs": "test_arguments",
    "torch_compile": "test_self_check",
    "torch_compile_backend": "test_self_check",
}
"""Options of ``trl_options.TRAINED`` that other tests train with."""

# Values that only a configuration is made with.
CONSTRUCTED: dict[str, dict[str, Any]] = {
    "vllm": {
        "use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://127.0.0.1:8000",
        "vllm_max_model_length": 9000, "vllm_tensor_parallel_size": 2, "vllm_importance_sampling_mode": "token_mask",
        "vllm_importance_sampling_clip_max": 2.0, "vllm_importance_sampling_clip_min": 0.5,
        "vllm_model_impl": "transformers", "vllm_server_host": "1.2.3.4", "vllm_server_port": 1,
        "vllm_server_timeout": 3.0, "vllm_group_port": 7, "vllm_gpu_memory_utilization": 0.5,
    },
    "vllm that sleeps": {"use_vllm": True, "vllm_enable_sleep_mode": True},
    "vllm off": {"vllm_importance_sampling_correction": False},
    "vllm old": {"vllm_importance_sampling_cap": 2.0},
    "hub": {
        "log_completions": True, "log_completions_hub_repo": "a/b", "project": "p", "trackio_space_id": "s",
        "trackio_bucket_id": "b", "trackio_static_space_id": "s", "push_to_hub": True, "hub_token": "t",
        "hub_private_repo": True, "hub_model_id": "m", "hub_strategy": "end", "hub_always_push": True,
        "hub_revision": "r",
    },
    "memory": {
        "router_aux_loss_coef": 0.1, "optim_args": "a=1",
        "optim_target_modules": "all-linear", "bf16_full_eval": True, "use_cache": True,
        "activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": False},
        "torch_compile_mode": "default", "use_liger_kernel": True, "liger_kernel_config": {"rope": True},
    },
    "half": {"fp16": True, "bf16": False, "fp16_full_eval": True},
    "logs": {
        "log_on_each_node": False, "log_level": "info", "log_level_replica": "error", "save_on_each_node": True,
        "debug": "underflow_overflow", "full_determinism": True,
    },
    "launch": {
        "enable_jit_checkpoint": True, "ignore_data_skip": True, "restore_callback_states_from_checkpoint": True,
        "accelerator_config": {"split_batches": True}, "dataloader_multiprocessing_context": "spawn",
        "dataloader_num_workers": 1, "dataloader_in_order": False, "ddp_find_unused_parameters": True,
        "ddp_bucket_cap_mb": 5, "ddp_broadcast_buffers": True, "ddp_static_graph": True, "ddp_timeout": 5,
    },
}  # fmt: skip

NOT_HERE = {
    **{"ddp_backend": "test_distributed", "tf32": "it needs a GPU", "deepspeed": "it needs the library"},
    **dict.fromkeys(("fsdp", "fsdp_config"), "tests/sharded"),
}
"""Options with which no configuration can be made in one process without a GPU."""
