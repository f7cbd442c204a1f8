"""What becomes of each option of TRL's ``GRPOConfig``: the one declaration.

A field of TRL's is in one of `TRAINED`, `WITH_VLLM`, `REFUSED` and `NO_EFFECT`, or it is passed on.
"""

from typing import Any, NamedTuple

from ragen_trl.errors import OptionError


class Refused(NamedTuple):
    """An option that rollouts do not honour.

    Attributes:
        only: The one value that is accepted.
        instead: What to do instead.
    """

    only: Any
    instead: str


REFUSED: dict[str, Refused] = {
    "min_p": Refused(None, "use temperature, top_k or top_p"),
    "repetition_penalty": Refused(1.0, "use temperature, or a reward function against repetition"),
    "generation_kwargs": Refused(None, "use temperature, top_k, top_p, max_reply_length and stop_at_answer"),
    "cache_implementation": Refused(None, "the KV cache is kept over all turns anyway; for speed use use_vllm=True"),
    "pad_to_multiple_of": Refused("auto", "rows of like length are put together, and cut to the longest"),
    "mask_truncated_completions": Refused(
        False, "raise max_completion_length, or set cut_penalty, the price of a reply that a token limit cuts"
    ),
    "disable_dropout": Refused(True, "dropout would score replies in another network than the one that sampled them"),
    "max_tool_calling_iterations": Refused(None, "use max_turns, max_actions_per_turn and max_actions"),
    "use_transformers_continuous_batching": Refused(False, "for speed use use_vllm=True"),
    "transformers_continuous_batching_config": Refused(None, "for speed use use_vllm=True"),
    "use_transformers_paged": Refused(False, "for speed use use_vllm=True"),
    "vllm_structured_outputs_regex": Refused(None, "force_reply_prefix starts each reply; format_penalty fines others"),
    "neftune_noise_alpha": Refused(
        None, "noise in training makes other log-probabilities than those sampled from; use temperature or entropy_coef"
    ),
    "remove_unused_columns": Refused(False, "rows need their seed, and reward functions get all other columns"),
    "auto_find_batch_size": Refused(False, "lower per_device_train_batch_size, and raise gradient_accumulation_steps"),
    "ds3_gather_for_generation": Refused(
        True,
        "with DeepSpeed ZeRO-3 every pass of a rollout would gather weights, and processes whose episodes take more "
        "turns make more passes, so that they would wait for the others for ever; where memory is short use LoRA",
    ),
    "use_adaptive_entropy": Refused(False, "set entropy_coef, whose bonus is a mean over the update"),
    "top_entropy_quantile": Refused(1.0, "set entropy_coef, or weigh tokens in a policy_loss of your own"),
    "off_policy_mask_threshold": Refused(None, "set delta, or make fewer updates on a rollout"),
    "parallelism_config": Refused(None, "launch with FSDP2 or DeepSpeed, which divide weights over the processes"),
}
"""Refused when the configuration is made, unless they have the value ``only``, or ``None``, which TRL makes of some."""

NO_EFFECT: dict[str, str] = {
    **dict.fromkeys(
        (
            *("sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos"),
            *("vespo_k_neg", "vespo_lambda_neg"),
        ),
        "of a loss_type that is refused",
    ),
    **dict.fromkeys(
        ("entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"),
        "of use_adaptive_entropy, which is refused",
    ),
    "log_multimodal": "what is logged of a rollout is text",
    "label_smoothing_factor": "as in GRPOTrainer, which has no labels",
    "label_names": "as in GRPOTrainer, which has no labels",
    "prediction_loss_only": "as in GRPOTrainer, which has no compute_metrics",
    "include_for_metrics": "as in GRPOTrainer, which has no compute_metrics",
    "batch_eval_metrics": "as in GRPOTrainer, which has no compute_metrics",
    "eval_do_concat_batches": "as in GRPOTrainer, which has no compute_metrics",
    "eval_use_gather_object": "as in GRPOTrainer, which has no compute_metrics",
    "include_num_input_tokens_seen": "as in GRPOTrainer, which always logs num_tokens",
    "average_tokens_across_devices": "as in GRPOTrainer; losses are always averaged over all processes",
    "train_sampling_strategy": "as in GRPOTrainer, whose sampler keeps groups together",
    "length_column_name": "as in GRPOTrainer, whose sampler keeps groups together",
    "data_seed": "as in GRPOTrainer; the order follows seed",
    "do_train": "as in Transformers: for scripts of your own",
    "do_predict": "as in Transformers: for scripts of your own",
    "resume_from_checkpoint": "as in Transformers: pass it to train()",
    "local_rank": "as in Transformers: the launcher sets it",
}
"""Accepted, and nothing comes of them."""

# Set to another value in a training run of the tests.
TRAINED = (
    *"output_dir model_init_kwargs trust_remote_code cast_lm_head_to_fp32 num_generations".split(),
    *"num_generations_eval max_completion_length shuffle_dataset generation_batch_size steps_per_generation".split(),
    *"temperature top_p top_k beta num_iterations epsilon delta epsilon_high importance_sampling_level".split(),
    *"reward_weights multi_objective_aggregation scale_rewards loss_type sync_ref_model ref_model_mixup_alpha".split(),
    *"ref_model_sync_steps entropy_coef use_bias_correction_kl".split(),
    *"log_completions num_completions_to_print log_unique_prompts per_device_train_batch_size".split(),
    *"num_train_epochs max_steps learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps optim".split(),
    *"weight_decay adam_beta1 adam_beta2 adam_epsilon gradient_accumulation_steps max_grad_norm bf16".split(),
    *"gradient_checkpointing gradient_checkpointing_kwargs torch_compile torch_compile_backend".split(),
    *"torch_empty_cache_steps logging_strategy logging_steps logging_first_step logging_nan_inf_filter".split(),
    *"disable_tqdm report_to run_name eval_strategy eval_steps eval_delay per_device_eval_batch_size".split(),
    *"eval_on_start eval_accumulation_steps do_eval save_only_model save_strategy save_steps".split(),
    *"save_total_limit load_best_model_at_end metric_for_best_model greater_is_better seed".split(),
    *"use_cpu dataloader_drop_last dataloader_num_workers dataloader_pin_memory".split(),
    *"dataloader_persistent_workers dataloader_prefetch_factor skip_memory_metrics chat_template_kwargs".split(),
)

# Used in the tests with a vLLM engine, in part a fake one; what is for a server, with a server of the tests.
WITH_VLLM = (
    *"use_vllm vllm_mode vllm_server_base_url vllm_server_timeout vllm_max_model_length".split(),
    *"vllm_tensor_parallel_size vllm_enable_sleep_mode vllm_importance_sampling_correction".split(),
    *"vllm_importance_sampling_mode vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min".split(),
)

REFUSED_ARGUMENTS: dict[str, str] = {
    "tools": "actions are free text here: write an environment (ragen_envs.TextEnv) and pass it as env",
    "rollout_func": "override the hook rollout(starts, envs, policy) in a subclass, see docs/your_own_trainer.md",
    "environment_factory": "pass a function that makes a Gymnasium environment as env",
}
"""Arguments of ``GRPOTrainer`` that are refused, with what to do instead; all others exist here, too."""


def check_refused(args: Any) -> None:
    """Raise `OptionError`, with the value and what to do instead, for an option that rollouts do not honour.

    It is called before TRL has replaced values.
    """
    for name, refused in REFUSED.items():
        if getattr(args, name) not in (refused.only, None):
            raise OptionError(
                f"{name} is {getattr(args, name)!r}, which rollouts do not honour; leave {refused.only!r}: "
                f"{refused.instead}"
            )


def check_best_metric(args: Any) -> None:
    """Raise `OptionError` where a loss would choose the best checkpoint, or when to lower the learning rate.

    It is called after Transformers has filled in "loss" for what needs a metric and was given none.
    """
    name = str(args.metric_for_best_model)
    if name.endswith("loss"):
        raise OptionError(
            f"metric_for_best_model is {name!r} (Transformers' choice where none is given), but the loss of an "
            "evaluation is about 0 whatever the model does, because advantages are those within a group; set "
            "metric_for_best_model='eval_success'"
        )
