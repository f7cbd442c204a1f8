"""Options that are right alone but not together, or that would be accepted and do nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragen_trl.config import StarPOConfig

CRITIC_ADVANTAGES = ("gae", "turn_gae", "bi_level_gae")

_OF_A_CRITIC = ("whiten_advantages", "bootstrap", "critic_learning_rate", "critic_warmup_steps", "value_clip")
# Which of these options each advantage reads; the others would be accepted and do nothing.
READ: dict[str, tuple[str, ...]] = {
    "group": ("baseline", "scale_rewards"),
    "gae": ("gamma", "gae_lambda", *_OF_A_CRITIC),
    "turn_gae": ("turn_gamma", "turn_lambda", *_OF_A_CRITIC),
    "bi_level_gae": ("gamma", "gae_lambda", "turn_gamma", *_OF_A_CRITIC),
    "gigpo": ("turn_gamma", "step_weight", "scale_rewards"),
    "mt_grpo": ("step_weight",),
}


def check_combinations(args: "StarPOConfig") -> None:
    """Raise ``ValueError``, with the values and the remedy, for options that do not go together."""
    for name in sorted({option for read in READ.values() for option in read} - set(READ[args.advantage])):
        if getattr(args, name) != getattr(type(args), name):
            raise ValueError(
                f"{name} is {getattr(args, name)!r}, which advantage {args.advantage!r} does not read; leave it at "
                f"{getattr(type(args), name)!r}"
            )
    if args.advantage == "gigpo" and args.scale_rewards == "batch":
        raise ValueError("scale_rewards is 'batch', which advantage 'gigpo' does not have; use 'group' or 'none'")
    _check_updates(args)
    filters = args.filter_ratio < 1 or args.max_refills > 0
    if filters and args.loss_type == "bnpo":
        raise ValueError(
            "loss_type is 'bnpo', which weighs micro-batches by their filled rows; with a filter use another one"
        )
    if filters and args.use_adaptive_entropy:
        raise ValueError(
            "use_adaptive_entropy is True, whose bonus is a mean per micro-batch, filler rows of the filter included; "
            "with a filter use entropy_coef"
        )
    if args.fp16 and (filters or args.critic_warmup_steps):
        raise ValueError(
            "fp16 is True, whose loss scaler cannot pass over an update, as a filter that keeps nothing and a critic's "
            "warm-up do; use bf16, or float32"
        )
    if args.filter_strategy == "top_p" and args.filter_ratio == 1:
        raise ValueError("filter_strategy is 'top_p' and filter_ratio 1.0, which keeps all; lower it, 0.9 in RAGEN-2")
    if args.max_refills and args.filter_strategy == "top_p":
        raise ValueError(
            f"max_refills is {args.max_refills}, but filter_strategy 'top_p' has no number of groups to fill up to; "
            "use 'top_k'"
        )
    if args.multi_objective_aggregation == "normalize_then_sum":
        _check_normalised_first(args)


def _check_normalised_first(args: "StarPOConfig") -> None:
    if args.baseline != "mean" or args.scale_rewards != "group":
        raise ValueError(
            f"baseline is {args.baseline!r} and scale_rewards {args.scale_rewards!r}, but multi_objective_aggregation "
            "'normalize_then_sum' always takes the group's mean and std; leave 'mean' and 'group'"
        )
    if args.advantage != "group":
        raise ValueError(
            "multi_objective_aggregation is 'normalize_then_sum', which is defined for whole trajectories; advantage "
            f"{args.advantage!r} needs 'sum_then_normalize'"
        )


def _check_updates(args: "StarPOConfig") -> None:
    assert args.steps_per_generation is not None
    if args.steps_per_generation % args.gradient_accumulation_steps and (
        args.gradient_accumulation_steps % args.steps_per_generation
    ):
        raise ValueError(
            f"steps_per_generation {args.steps_per_generation} and gradient_accumulation_steps "
            f"{args.gradient_accumulation_steps}: one must divide the other, or an update would mix two rollouts"
        )
