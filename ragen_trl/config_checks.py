"""Options that are right alone but not together, or that would be accepted and do nothing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.config import StarPOConfig

CRITIC_ADVANTAGES = ("gae", "turn_gae", "bi_level_gae")

# Where an advantage has no use for an option: the only value that is accepted.
_WITHOUT_USE: dict[str, dict[str, tuple[Any, ...]]] = {
    "group": {"critic_warmup_steps": (0,)},
    "gigpo": {"critic_warmup_steps": (0,), "baseline": ("mean",), "scale_rewards": ("group", "none")},
    "mt_grpo": {"critic_warmup_steps": (0,), "baseline": ("mean",), "scale_rewards": ("group",)},
    **dict.fromkeys(CRITIC_ADVANTAGES, {"baseline": ("mean",), "scale_rewards": ("group",)}),
}


def check_combinations(args: "StarPOConfig") -> None:
    """Raise ``ValueError``, with the values and the remedy, for options that do not go together."""
    for name, allowed in _WITHOUT_USE[args.advantage].items():
        if getattr(args, name) not in allowed:
            raise ValueError(
                f"{name} is {getattr(args, name)!r}, which advantage {args.advantage!r} has no use for; leave "
                f"{' or '.join(map(repr, allowed))}"
            )
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
    if args.max_refills and args.filter_strategy == "top_p":
        raise ValueError(
            f"max_refills is {args.max_refills}, but filter_strategy 'top_p' has no number of groups to fill up to; "
            "use 'top_k'"
        )
    if args.multi_objective_aggregation == "normalize_then_sum" and args.advantage != "group":
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
    if args.num_train_seeds is not None and args.num_train_seeds < args.groups_per_generation:
        raise ValueError(
            f"num_train_seeds is {args.num_train_seeds}, but every rollout takes {args.groups_per_generation} "
            "different start states; raise it or leave it unset"
        )
