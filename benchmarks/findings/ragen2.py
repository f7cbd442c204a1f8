"""The claims of RAGEN-2 (arXiv 2604.06268), with the numbers of its main table and text.

Not asked: what needs models of several sizes or pictures (the table's other rows).
"""

from findings.claims import Claim, Pair
from findings.measures import BEST, CPU, ENTROPY_GRADIENT, INFORMATION, TASK_GRADIENT

_PAPER = "RAGEN-2"
_PPO_GAMES = ("sokoban", "frozenlake", "frozenlake_slippery", "bandit")
_GRPO_GAMES = ("frozenlake", "bandit")
_MEASURED = (Pair("GRPO", "variance_filter", "measured", games=("frozenlake", "sokoban", "bandit")),)

CLAIMS = (
    Claim(
        "variance_filter_helps",
        _PAPER,
        "main table",
        "The filter that keeps the groups with most of the reward's spread (top-p 0.9) peaks higher than none: "
        "Sokoban +16.0, FrozenLake +10.9 points (3B, PPO form); GRPO form +9.0 in Sokoban, +2.3 on FrozenLake.",
        (
            Pair("PPO", "variance_filter", "gae_variance", "gae_100", _PPO_GAMES),
            Pair("GRPO", "variance_filter", "group_variance", "group_100", _GRPO_GAMES),
        ),
        effect=0.02,
        measure=BEST,
    ),
    Claim(
        "mass_beats_number",
        _PAPER,
        "text",
        "Keeping groups by their mass of spread (top-p) beats keeping a fixed share of them (top-k).",
        (
            Pair("PPO", "variance_filter", "gae_variance", "gae_25", _PPO_GAMES),
            Pair("GRPO", "variance_filter", "group_variance", "group_25", _GRPO_GAMES[:1]),
        ),
    ),
    Claim(
        "variance_filter_saves_time",
        _PAPER,
        "text",
        "The filter by spread saves 26 to 41 % of the time of a step.",
        (
            Pair("PPO", "variance_filter", "gae_100", "gae_variance", _PPO_GAMES),
            Pair("GRPO", "variance_filter", "group_100", "group_variance", _GRPO_GAMES),
        ),
        measure=CPU,
        effect=1.25,
    ),
    Claim(
        "information_says_success",
        _PAPER,
        "figure on metrics",
        "Mutual information between prompts and thoughts goes with success: Spearman +0.39 (second-hand; of its "
        "z-score).",
        (
            Pair(
                "GRPO, filter",
                "variance_filter",
                "group_variance",
                games=("frozenlake, with notes of three lengths",),
            ),
        ),
        measure=INFORMATION,
        effect=0.2,
    ),
    Claim(
        "spread_carries_the_task",
        _PAPER,
        "text",
        "The task gradient is larger in groups with more spread of the reward, by the bound |g| <= std(R) C. Measured "
        "of advantages that are not divided by the std, which carry its factor by definition.",
        _MEASURED,
        measure=TASK_GRADIENT,
        effect=1.5,
    ),
    Claim(
        "regulariser_is_flat",
        _PAPER,
        "text",
        "The gradient of a regulariser does not depend on the spread.",
        _MEASURED,
        kind="alike",
        measure=ENTROPY_GRADIENT,
        effect=1.5,
    ),
)
