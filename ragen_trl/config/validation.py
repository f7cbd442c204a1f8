"""Refusals of options that are out of range, that do not go together, or that would have no effect."""

import math
import threading
import warnings
from typing import Any, TypeAlias

from ragen_trl.config.context_names import context_function
from ragen_trl.config.critic import CRITIC_SCHEDULES
from ragen_trl.config.play import LEAST_TEMPERATURE, check_sampling
from ragen_trl.config.reading import ADVANTAGES, CRITIC_ADVANTAGES, READ_BY_LOSS, check_read
from ragen_trl.errors import OptionError

Options: TypeAlias = Any
"""A ``StarPOConfig``, whose module imports this one."""

# TRL looks at the last three only when it needs them, which may be hours later.
CHOICES: dict[str, tuple[str, ...]] = {
    "advantage": ADVANTAGES,
    "baseline": ("mean", "leave_one_out"),
    "filter_strategy": ("top_k", "top_p", "top_p_variance"),
    "bootstrap": ("unseen", "all", "none"),
    "critic_lr_scheduler_type": CRITIC_SCHEDULES,
    "sampler_check": ("stop", "warn"),
    "loss_type": tuple(READ_BY_LOSS),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "observation": ("text", "image"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}


class OffPolicySamplingWarning(UserWarning):
    """Rollouts are sampled from another distribution than the one that is trained."""


def warn_of_narrowed_sampling(args: Options) -> None:
    """Warn if tokens are cut off before sampling: the loss scores them under the whole distribution."""
    options = {name: getattr(args, name) for name in ("top_p", "top_k")}
    narrowed = [f"{name} is {value}" for name, value in options.items() if value != getattr(type(args), name)]
    if narrowed:
        warnings.warn(
            f"{' and '.join(narrowed)}: replies are sampled without the unlikely tokens, but trained under the whole "
            "distribution, so updates are off-policy and push what is never sampled down; leave top_p at 1.0 and top_k "
            "at 0, and set temperature below 1, which is trained as it is sampled",
            OffPolicySamplingWarning,
            stacklevel=3,
        )


def short_trajectory(args: Options) -> str:
    """What to say where a trajectory is shorter than a reply may be, as TRL's number for one is; empty where not."""
    whole, reply = args.max_completion_length, args.max_reply_length
    if args.max_turns == 1 or whole is None or whole >= reply:
        return ""
    return (
        f"max_completion_length is {whole}, the tokens of a whole trajectory of up to {args.max_turns} turns after its "
        f"first prompt, and max_reply_length, those of one reply, is {reply}: the first reply may end an episode; "
        "raise the first, or lower the second"
    )


def check_values(args: Options) -> None:
    """Raise `OptionError`, with the value and what is allowed, for an option that is out of its range."""
    for name in ("max_turns", "max_actions_per_turn", "max_actions", "max_reply_length"):
        if getattr(args, name) < 1:
            raise OptionError(f"{name} is {getattr(args, name)}; it must be at least 1")
    for name in ("critic_batch_size", "critic_epochs"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1, or unset to follow the policy's schedule")
    of_critic = ("critic_warmup_steps", "critic_lr_warmup_rollouts")
    for name in (*of_critic, "max_refills", "step_weight", "entropy_coef", "epsilon", "curriculum_rollouts"):
        if getattr(args, name) < 0:
            raise OptionError(f"{name} is {getattr(args, name)}; it cannot be negative")
    for name in ("temperature", "critic_learning_rate"):
        if not 0 < getattr(args, name) < float("inf"):
            raise OptionError(f"{name} is {getattr(args, name)}; it must be above 0 and finite")
    if args.temperature < LEAST_TEMPERATURE:
        raise OptionError(f"temperature is {args.temperature}; it must be at least {LEAST_TEMPERATURE:g}")
    for name in ("gamma", "gae_lambda", "turn_gamma", "turn_lambda"):
        if not 0 <= getattr(args, name) <= 1:
            raise OptionError(f"{name} is {getattr(args, name)}; it must be in [0, 1]")
    for name, allowed in CHOICES.items():
        if getattr(args, name) not in allowed:
            raise OptionError(f"{name} is {getattr(args, name)!r}; choose one of {', '.join(allowed)}")
    for name in ("format_penalty", "cut_penalty", "env_failure_penalty"):
        if not -math.inf < getattr(args, name) <= 0:
            raise OptionError(f"{name} is {getattr(args, name)}; a penalty is a number up to 0")
    if args.window_turns is not None and args.window_turns < 1:
        raise OptionError(f"window_turns is {args.window_turns}; the model sees at least the present turn: 1 or more")
    _check_play(args)
    if not 0 < args.filter_ratio <= 1:
        raise OptionError(f"filter_ratio is {args.filter_ratio}; it must be in (0, 1], 1 keeps every group")
    if args.value_clip is not None and args.value_clip <= 0:
        raise OptionError(f"value_clip is {args.value_clip}; give a positive number, or leave it unset for no clip")
    if isinstance(args.env_kwargs, str):
        raise OptionError(f"env_kwargs is {args.env_kwargs!r}; write it as JSON, for example '{{\"size\": 5}}'")
    if not isinstance(args.chat_template_kwargs, dict | None):
        raise OptionError(
            f"chat_template_kwargs is {args.chat_template_kwargs!r}; write it as JSON, for example "
            "'{\"enable_thinking\": false}'"
        )


def _check_play(args: Options) -> None:
    check_sampling(args.top_p, args.top_k)
    if not 0 <= args.seed < 2**32:
        raise OptionError(f"seed is {args.seed}; it must be in [0, 2**32)")
    workers, timeout = args.env_workers, args.env_timeout
    if workers < 0:
        raise OptionError(f"env_workers is {workers}; give a number of threads, or 0 for none")
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise OptionError(f"env_timeout is {timeout}; give seconds above 0, or leave it unset for no limit")
    if timeout is not None and not workers:
        raise OptionError(
            f"env_timeout is {timeout} and env_workers 0, but only a step in another thread can be given up; set "
            "env_workers to 1 or more"
        )
    size = args.rollout_batch_size
    if size is not None and size < 1:
        raise OptionError(f"rollout_batch_size is {size}; give a number of trajectories, or leave it unset for all")


def check_combinations(args: Options) -> None:
    """Raise `OptionError`, with the values and the remedy, for options that do not go together."""
    check_read(args)
    _check_loss(args)
    _check_credit(args)
    _check_critic_rate(args)
    _check_updates(args)
    _check_vllm(args)
    _check_sampler_ratio(args)
    _check_one_step_off(args)
    _check_contexts(args)
    _check_pictures(args)
    _check_filter(args)
    if args.curriculum_rollouts and args.max_steps < 1:
        raise OptionError(
            f"curriculum_rollouts is {args.curriculum_rollouts}, but in passes over start states each comes once; set "
            "max_steps instead of num_train_epochs, or leave it at 0"
        )


def _check_loss(args: Options) -> None:
    if args.log_kl and args.beta:
        raise OptionError(f"log_kl is True and beta {args.beta}, whose term logs the KL anyway; leave log_kl off")
    if args.loss_type == "cispo" and (args.epsilon_high is None or args.epsilon_high <= 1):
        text = "by which loss_type 'cispo' bounds the ratio itself; set it above 1, TRL recommends 5.0"
        raise OptionError(f"epsilon_high is {args.epsilon_high}, {text}")
    high = args.epsilon if args.epsilon_high is None or args.loss_type == "cispo" else args.epsilon_high
    if args.delta is not None and args.delta <= 1 + max(args.epsilon, high):
        raise OptionError(
            f"delta is {args.delta}, inside the clip range of epsilon {args.epsilon} and epsilon_high "
            f"{args.epsilon_high}; the dual clip begins beyond it: take 3, or leave it unset"
        )
    if args.loss_type == "dr_grpo" and args.max_completion_length is None:
        raise OptionError("loss_type 'dr_grpo' divides by max_completion_length, which is None; set it, or take 'dapo'")


def _check_credit(args: Options) -> None:
    if args.advantage == "gigpo" and args.scale_rewards == "batch":
        raise OptionError("scale_rewards is 'batch', which advantage 'gigpo' does not have; use 'group' or 'none'")
    if args.advantage in CRITIC_ADVANTAGES and 0 < args.max_steps < args.critic_warmup_steps:
        raise OptionError(
            f"critic_warmup_steps is {args.critic_warmup_steps} and max_steps {args.max_steps}: the policy would never "
            "learn; lower the first or raise the second"
        )
    if args.multi_objective_aggregation != "normalize_then_sum":
        return
    if args.baseline != "mean" or args.scale_rewards != "group":
        raise OptionError(
            f"baseline is {args.baseline!r} and scale_rewards {args.scale_rewards!r}, but multi_objective_aggregation "
            "'normalize_then_sum' always takes the group's mean and std; leave 'mean' and 'group'"
        )
    if args.advantage != "group":
        raise OptionError(
            "multi_objective_aggregation is 'normalize_then_sum', which is defined for whole trajectories; advantage "
            f"{args.advantage!r} needs 'sum_then_normalize'"
        )


def _check_critic_rate(args: Options) -> None:
    if args.critic_lr_warmup_rollouts and args.critic_lr_scheduler_type == "constant":
        raise OptionError(
            f"critic_lr_warmup_rollouts is {args.critic_lr_warmup_rollouts} and critic_lr_scheduler_type 'constant', "
            "which has no warm-up; use 'constant_with_warmup'"
        )
    if args.max_steps > 0 and args.critic_lr_warmup_rollouts > args.num_rollouts:
        raise OptionError(
            f"critic_lr_warmup_rollouts is {args.critic_lr_warmup_rollouts}, but the run has {args.num_rollouts} "
            "rollouts, so that the critic would never reach its learning rate; lower it"
        )


def _check_contexts(args: Options) -> None:
    given = {name: getattr(args, name) for name in ("window_turns", "context") if getattr(args, name) is not None}
    if not given:
        return
    if len(given) > 1:
        raise OptionError(f"window_turns is {args.window_turns} and context {args.context!r}; give one of the two")
    if args.context is not None:
        context_function(args.context)


def _check_pictures(args: Options) -> None:
    if args.observation == "text":
        if args.image_size != type(args).image_size:
            raise OptionError(
                f"image_size is {args.image_size}, which observation 'text' does not read; set observation='image'"
            )
        return
    if args.image_size < 28:
        raise OptionError(f"image_size is {args.image_size}; give at least 28 pixels, a token of Qwen2.5-VL")
    if args.advantage in CRITIC_ADVANTAGES:
        raise OptionError(
            f"observation is 'image' and advantage {args.advantage!r}, whose critic reads text; use 'group', 'gigpo' "
            "or 'mt_grpo'"
        )
    blind = {
        "window_turns": "a context that is built again would need its pictures again",
        "context": "a context that is built again would need its pictures again",
        "use_vllm": "vLLM is sent token ids without pictures",
        "one_step_off_policy": "the copy of the weights that plays ahead reads text",
    }
    for name, reason in blind.items():
        if getattr(args, name):
            raise OptionError(
                f"observation is 'image' and {name} {getattr(args, name)!r}: {reason}; leave {name} unset"
            )


def _check_filter(args: Options) -> None:
    filters = args.filter_ratio < 1 or args.max_refills > 0
    if args.fp16 and (filters or args.critic_warmup_steps):
        raise OptionError(
            "fp16 is True, whose loss scaler cannot skip an update, as is needed after a filter that keeps nothing and "
            "in a critic's warm-up; use bf16, or float32"
        )
    if args.num_generations == 1 and args.advantage in CRITIC_ADVANTAGES and filters:
        raise OptionError(
            f"num_generations is 1, but filter_ratio {args.filter_ratio} and max_refills {args.max_refills} need "
            "groups; raise the first, or leave the others unset"
        )
    strategy = args.filter_strategy
    if strategy != "top_k" and args.filter_ratio == 1:
        raise OptionError(
            f"filter_strategy is {strategy!r} and filter_ratio 1.0, which keeps all; lower it, 0.9 in RAGEN-2"
        )
    if strategy != "top_k" and args.max_refills:
        raise OptionError(
            f"max_refills is {args.max_refills}, but filter_strategy {strategy!r} has no number of groups to fill up "
            "to; use 'top_k'"
        )


def _check_updates(args: Options) -> None:
    assert args.steps_per_generation is not None
    of_pass, of_update = args.steps_per_generation, args.gradient_accumulation_steps
    of_rollout = of_pass * args.num_iterations
    if of_pass % of_update and (of_update % of_pass or (of_rollout % of_update and of_update % of_rollout)):
        raise OptionError(
            f"steps_per_generation {args.steps_per_generation} (· num_iterations {args.num_iterations}) and "
            f"gradient_accumulation_steps {args.gradient_accumulation_steps}: one must divide the other, or an update "
            "would mix parts of two rollouts, or of two passes over one"
        )
    name = "eval_steps" if args.save_strategy == "best" else "save_steps"
    every, share = getattr(args, name) if args.save_strategy in ("steps", "best") else 0, ""
    if every and every < 1:  # Transformers takes it for a share of the run
        every = math.ceil(args.max_steps * every) if args.max_steps > 0 else 0
        share = f" of the run, {every} of {args.max_steps} updates"
    if every and every % max(1, args.steps_per_rollout):
        raise OptionError(
            f"{name} is {getattr(args, name):g}{share}, but a rollout has {args.steps_per_rollout:g} updates; a "
            "checkpoint between them cannot be resumed from; give a multiple"
        )


def _check_sampler_ratio(args: Options) -> None:
    """Bounds of the ratio between trainer and sampler; TRL does not come to its own checks where groups are of one."""
    low, high = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
    if low is not None and high is not None and low >= high:
        raise OptionError(
            f"vllm_importance_sampling_clip_min is {low}, which is not below vllm_importance_sampling_clip_max ({high})"
        )
    mode = args.vllm_importance_sampling_mode
    if args.vllm_importance_sampling_correction and mode.endswith("_truncate") and low is None and high is None:
        raise OptionError(
            f"vllm_importance_sampling_mode is {mode!r} without a bound; set vllm_importance_sampling_clip_max"
        )


def _check_one_step_off(args: Options) -> None:
    if not args.one_step_off_policy:
        return
    if not args.vllm_importance_sampling_correction:
        raise OptionError(
            "one_step_off_policy is True and vllm_importance_sampling_correction False: nothing would correct for the "
            "older policy that played; leave the correction on"
        )
    if args.use_vllm and args.vllm_mode == "colocate":
        raise OptionError(
            "one_step_off_policy is True and vllm_mode 'colocate': an engine in the trainer's process would wait for "
            "the same GPU; set vllm_mode='server', or leave one_step_off_policy off"
        )
    if args.steps_per_rollout < 1:
        raise OptionError(
            f"one_step_off_policy is True, but an update takes {1 / args.steps_per_rollout:g} rollouts "
            "(gradient_accumulation_steps / steps_per_generation), of which all but the last would wait for each "
            "other; leave steps_per_generation unset, or one_step_off_policy off"
        )
    if not args.env_workers:
        raise OptionError(
            "one_step_off_policy is True and env_workers 0, which steps environments in the main thread, where "
            "training runs; set env_workers to 1 or more, or leave one_step_off_policy off"
        )
    if args.ignore_data_skip:
        raise OptionError(
            "one_step_off_policy is True and ignore_data_skip, by which a resumed run begins its start states again, "
            "but not the rollout that was played ahead; leave one of them off"
        )


def _check_servers(args: Options) -> None:
    if args.vllm_mode == "server" and args.vllm_enable_sleep_mode:
        raise OptionError(
            "vllm_enable_sleep_mode is True and vllm_mode 'server': a server has GPUs of its own; leave the first off"
        )
    if args.vllm_mode == "server" and args.world_size > 1 and args.vllm_server_timeout >= args.ddp_timeout:
        raise OptionError(
            f"vllm_server_timeout is {args.vllm_server_timeout:g} and ddp_timeout {args.ddp_timeout}: while the main "
            "process waits for a server, the others wait for it, and would give up first; lower the first or raise the "
            "second"
        )


def _check_vllm(args: Options) -> None:
    if args.vllm_adapter_dir is not None and not (args.use_vllm and args.vllm_mode == "server"):
        raise OptionError(
            f"vllm_adapter_dir is {args.vllm_adapter_dir!r}, which only a vLLM server reads; set use_vllm=True and "
            "vllm_mode='server', or leave it unset"
        )
    if not args.use_vllm:
        return
    if args.vllm_mode == "colocate" and args.vllm_tensor_parallel_size > 1:
        raise OptionError(
            f"vllm_tensor_parallel_size is {args.vllm_tensor_parallel_size} and vllm_mode 'colocate': processes that "
            "share an engine would have to play the same number of turns; give the model a server of its own "
            "(vllm serve MODEL --tensor-parallel-size ...) and set vllm_mode='server'"
        )
    _check_servers(args)
    longest = args.vllm_max_model_length
    if longest is not None and args.max_completion_length is not None and longest <= args.max_completion_length:
        raise OptionError(
            f"vllm_max_model_length is {longest}, and max_completion_length {args.max_completion_length} does not fit "
            "into it together with a prompt; raise the first or leave it unset, or lower the second"
        )
