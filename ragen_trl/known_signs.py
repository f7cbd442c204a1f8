"""The signs of collapse that are known here: what each looks at, its threshold, what it means and what to do.

Early signs see behaviour narrow, confirmation signs see the damage. Spread, entropy, return and gradient norm are those
of RAGEN (arXiv 2504.20073, section 4.1), the stop rule and the mutual information those of RAGEN-2 (arXiv 2604.06268);
the rest is ours. Where each threshold comes from: docs/warning_signs.md. Left out: KL, which says how far a policy has
gone and not whether it went astray.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from ragen_trl.sign_rules import (
    Rule,
    below_best,
    declines,
    far_below_best,
    fell_by,
    fell_suddenly,
    fell_to,
    rose_by,
    rose_to,
    spikes,
    variance_gone,
)


@dataclass(frozen=True)
class Sign:
    """One sign of collapse.

    Attributes:
        name: Its name in logs and reports.
        kind: ``"early"`` (behaviour narrows) or ``"confirmation"`` (the damage is there).
        metric: The logged value it looks at.
        says: What it means, in one sentence.
        remedy: What to do first.
        rule: Holds or not at the end of the metric's values so far.
        even_if_gaining: Whether it may fire while the run gains.
        if_narrowed: Whether it waits until spread within groups is at most `collapse_signs.NARROWED` of its first
            values.
        if_falling: Whether it waits until success (without it: the return) is below 90 % of its best.
    """

    name: str
    kind: Literal["early", "confirmation"]
    metric: str
    says: str
    remedy: str
    rule: Rule
    even_if_gaining: bool = False
    if_narrowed: bool = False
    if_falling: bool = False


_FILTER = "keep the most uncertain groups (StarPOSConfig), or do not divide by a group's std (scale_rewards='none')"
_LESS = "lower the learning rate or the number of updates on one rollout (num_iterations)"
_BACK = "go back to the best checkpoint (CollapseMonitor(action='rollback')) and change the settings from there"

SIGNS = (
    Sign(
        "spread_falls",
        "early",
        "in_group_std",
        "Returns within groups are hardly more than half as spread as at first, and nothing was gained by it.",
        _FILTER,
        partial(fell_to, share=0.55),
    ),
    Sign(
        "actions_fall",
        "early",
        "collapse/actions_per_turn",
        "The agent does less and less in a turn: it is learning to stand still.",
        _FILTER,
        declines,
    ),
    Sign(
        "effect_falls",
        "early",
        "collapse/effective",
        "Fewer turns change anything in the environment.",
        _FILTER,
        partial(fell_to, share=0.85),
        if_narrowed=True,
    ),
    Sign(
        "echo",
        "early",
        "collapse/identical_replies",
        "Members of a group give the same first reply much more often than at first: RAGEN's echo trap.",
        f"{_FILTER}; or add an entropy bonus (entropy_coef)",
        partial(rose_by, amount=0.3),
        if_narrowed=True,
    ),
    Sign(
        "replies_shrink",
        "early",
        "collapse/reply_tokens",
        "Replies are hardly more than half as long as at first.",
        "look at replies in the report: what was left out? reward it, or keep a KL penalty (beta)",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    Sign(
        "replies_swell",
        "early",
        "collapse/reply_tokens",
        "Replies are more than twice as long as at first.",
        "lower max_reply_length, or charge for length (length_reward)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    Sign(
        "thoughts_shrink",
        "early",
        "collapse/thought_tokens",
        "Thoughts are hardly more than half as long as at first: reasoning becomes a template.",
        "see whether collapse/mi_retrieval falls too; if so, reward thoughts that fit their prompt, or turn them off",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    Sign(
        "thoughts_ignore_prompts",
        "early",
        "collapse/mi",
        "What is said depends on the prompt half as much as at first: RAGEN-2's template collapse.",
        f"{_FILTER}; RAGEN-2's filter by mass (filter_strategy='top_p') was made for this",
        partial(fell_to, share=0.5, start=3, window=3),
    ),
    Sign(
        "entropy_drops",
        "early",
        "entropy",
        "The entropy over action tokens halved at once; in runs that learn it decays slowly.",
        f"{_LESS}; or add an entropy bonus (entropy_coef)",
        fell_suddenly,
        if_narrowed=True,
    ),
    Sign(
        "entropy_rises",
        "early",
        "entropy",
        "The entropy over action tokens is twice that of the beginning: the policy is coming apart.",
        f"{_LESS}; switch the entropy bonus off (entropy_coef=0)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    Sign(
        "spread_gone",
        "confirmation",
        "in_group_std",
        "RAGEN-2's stop rule: spread within groups below 10 % of the first ten rollouts', ten rollouts long.",
        _BACK,
        variance_gone,
    ),
    Sign(
        "success_falls",
        "confirmation",
        "success",
        "Success over 20 rollouts is below 60 % of its best.",
        _BACK,
        partial(below_best, share=0.6, window=20),
        even_if_gaining=True,
    ),
    Sign(
        "eval_success_falls",
        "confirmation",
        "eval_success",
        "Success on held-out start states, over three evaluations, is below 80 % of its best.",
        _BACK,
        partial(below_best, share=0.8, window=3),
        even_if_gaining=True,
    ),
    Sign(
        "return_falls",
        "confirmation",
        "return",
        "The return over 20 rollouts is three standard deviations of a rollout below its best.",
        _BACK,
        partial(far_below_best, deviations=3.0, window=20),
        even_if_gaining=True,
    ),
    Sign(
        "gradient_spikes",
        "confirmation",
        "grad_norm",
        "Three spikes of the gradient norm within 20 updates, each ten times what was usual.",
        f"lower max_grad_norm; {_LESS}",
        spikes,
        if_falling=True,
    ),
    Sign(
        "format_breaks",
        "confirmation",
        "format_valid",
        "The share of readable replies is 0.2 below that of the beginning.",
        _BACK,
        partial(fell_by, amount=0.2),
        even_if_gaining=True,
    ),
)
"""All signs, in the order in which they are reported."""
