"""What is refused of options: TRL's that rollouts cannot honour, and combinations that would be silently wrong.

The range of a single option is declared with it, in `options.py`.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ragen_trl.config.options import CRITIC_ADVANTAGES, check_range
from ragen_trl.errors import OptionError

# Options of TRL's that would change results and are not honoured, so they must stay as they are.
REFUSED = (
    # Replies are sampled by temperature, top_k and top_p alone, and scored in the network that sampled them.
    *("min_p", "repetition_penalty", "generation_kwargs", "vllm_structured_outputs_regex", "disable_dropout"),
    *("neftune_noise_alpha", "mask_truncated_completions", "max_tool_calling_iterations"),
    # The loss is ours.
    *("multi_objective_aggregation", "use_adaptive_entropy", "top_entropy_quantile", "off_policy_mask_threshold"),
    # TrajectoryRecorder writes whole trajectories (docs/evaluation.md).
    "log_completions",
    # The KL is measured to the policy as it was when the trainer was made; rows need their seed.
    *("sync_ref_model", "remove_unused_columns"),
    # Processes play unequal numbers of turns, and would wait for each other; FSDP2 or DeepSpeed divide weights.
    *("ds3_gather_for_generation", "parallelism_config"),
)

RANGES_OF_TRL = {
    "temperature": "[1e-30, inf)",  # divided by less, logits would leave the range of float32
    "top_p": "(0, 1]",
    "top_k": "[0, inf)",
    "epsilon": "[0, inf)",
    "learning_rate": "[0, inf)",
    "num_iterations": "[1, inf)",
    "seed": "[0, 4294967295]",
}


def check_options_of_trl(args: Any) -> None:
    """Raise `OptionError` for an option of TRL's that rollouts do not honour, or that is out of its range.

    It is called before TRL has replaced values. Options that a version of TRL does not have are left out.
    """
    for name in REFUSED:
        value, only = getattr(args, name, None), getattr(type(args), name, None)
        if value not in (only, None):
            raise OptionError(f"{name} is {value!r}, which rollouts do not honour; leave {only!r}")
    for name, within in RANGES_OF_TRL.items():
        check_range(name, getattr(args, name), within)
    if args.scale_rewards not in ("group", "batch", "none", True, False):
        raise OptionError(f"scale_rewards is {args.scale_rewards!r}; choose one of group, batch, none")


def check_combinations(args: Any) -> None:
    """Raise `OptionError`, with the values and the remedy, for options that together would be silently wrong.

    So would options be that end a run after hours. An option that merely has no effect is taken.
    """
    critic, astar = args.advantage in CRITIC_ADVANTAGES, args._trainer == "AStarPOTrainer"
    filters = args.filter_ratio < 1 or args.max_refills > 0
    high = args.epsilon if args.epsilon_high is None or args.loss_type == "cispo" else args.epsilon_high
    of_pass, of_update = args.steps_per_generation, args.gradient_accumulation_steps
    saved_at = "eval_steps" if args.save_strategy == "best" else "save_steps"
    every = getattr(args, saved_at) if args.save_strategy in ("steps", "best") else 0
    if every and every < 1:  # Transformers takes it for a share of the run
        every = math.ceil(args.max_steps * every) if args.max_steps > 0 else 0
    for wrong, message in (
        # The loss.
        (
            args.loss_type == "cispo" and (args.epsilon_high is None or args.epsilon_high <= 1),
            f"epsilon_high is {args.epsilon_high}, by which loss_type 'cispo' bounds the ratio itself; set it above 1, "
            "TRL recommends 5.0",
        ),
        (
            args.delta is not None and args.delta <= 1 + max(args.epsilon, high),
            f"delta is {args.delta}, inside the clip range of epsilon {args.epsilon} and epsilon_high "
            f"{args.epsilon_high}; the dual clip begins beyond it: take 3, or leave it unset",
        ),
        (
            args.loss_type == "dr_grpo" and args.max_completion_length is None,
            "loss_type 'dr_grpo' divides by max_completion_length, which is unset; set it",
        ),
        # Credit.
        (
            args.advantage == "gigpo" and args.scale_rewards == "batch",
            "scale_rewards is 'batch', which advantage 'gigpo' does not have; use 'group' or 'none'",
        ),
        (
            args.fp16 and (filters or (critic and args.critic_warmup_steps)),
            "fp16 is True, whose loss scaler cannot skip an update, as a filter and a critic's warm-up need; use bf16",
        ),
        (
            args.num_generations == 1 and filters,
            f"filter_ratio {args.filter_ratio} and max_refills {args.max_refills} need groups to compare; raise "
            "num_generations above 1, or leave both unset",
        ),
        # Rollouts, updates and checkpoints.
        (
            of_pass % of_update,
            f"gradient_accumulation_steps {of_update} does not divide steps_per_generation {of_pass}, so an update "
            "would mix two rollouts; make the second a multiple of the first, or leave it unset",
        ),
        (
            every and every % max(1, args.steps_per_rollout),
            f"{saved_at} is {getattr(args, saved_at):g}, a checkpoint every {every:g} updates, but a rollout has "
            f"{args.steps_per_rollout:g}, and a run goes on between two rollouts only; give a multiple",
        ),
        (
            str(args.metric_for_best_model).endswith("loss"),  # what Transformers takes where none is given
            f"metric_for_best_model is {args.metric_for_best_model!r}, but the loss of an evaluation is about 0 "
            "whatever the model does; set metric_for_best_model='eval_success'",
        ),
        # What the model reads.
        (
            args.importance_sampling_level == "sequence" and (args.window_turns or args.context),
            "importance_sampling_level is 'sequence', a ratio of whole trajectories, which window_turns and context "
            "divide into several contexts; use 'token'",
        ),
        (
            args.window_turns is not None and args.context is not None,
            f"window_turns is {args.window_turns} and context {args.context!r}; give one of the two",
        ),
        (
            args.observation == "image" and (critic or astar or args.window_turns or args.context or args.use_vllm),
            "observation is 'image', but a critic, A*-PO, window_turns, context and use_vllm read text; use advantage "
            "'group', 'gigpo' or 'mt_grpo' and leave the others unset",
        ),
        (
            args.use_vllm and args.vllm_mode == "colocate" and args.vllm_tensor_parallel_size > 1,
            f"vllm_tensor_parallel_size is {args.vllm_tensor_parallel_size} and vllm_mode 'colocate': processes that "
            "share an engine would have to play the same number of turns; set vllm_mode='server'",
        ),
    ):
        if wrong:
            raise OptionError(message)
    if args.context is not None:
        context_function(args.context)


def warn_of_narrowed_sampling(args: Any) -> None:
    """Warn if tokens are cut off before sampling: the loss scores them under the whole distribution."""
    usual = {name: getattr(type(args), name) for name in ("top_p", "top_k")}
    if narrowed := [f"{name} is {getattr(args, name)}" for name in usual if getattr(args, name) != usual[name]]:
        warnings.warn(
            f"{' and '.join(narrowed)}: replies are sampled without the unlikely tokens, but trained under the whole "
            "distribution, which pushes what is never sampled down; use a temperature below 1 instead",
            stacklevel=3,
        )


def context_function(name: Any) -> Callable[..., Any]:
    """The function that the option ``context`` names: ``"module:function"``, or one of `ragen_trl.rollout.contexts`.

    Raises:
        OptionError: If there is none, or it cannot be called with the turns and the opening.
    """
    module, _, called = str(name).rpartition(":")
    try:
        function: Callable[..., Any] = getattr(import_module(module or "ragen_trl.rollout.contexts"), called)
        inspect.signature(function).bind((), "")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise OptionError(
            f"context is {name!r}, which cannot be used ({error}); give actions_so_far, or a function of the turns so "
            "far and the opening at the top of a module: 'module:function'"
        ) from error
    return function


def context_name(function: Callable[..., Any]) -> str:
    """The name under which other processes and a saved model find a function; `OptionError` if they would not."""
    name = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    if context_function(name) is not function:
        raise OptionError(f"context is {function!r}, which other processes cannot find; define it in a module")
    return name
