"""The claims of RAGEN-2 (arXiv 2604.06268), with the numbers of its main table and text.

Not asked: what needs models of several sizes or pictures (the table's other rows).
"""

from findings.claims import Claim, Pair
from findings.measures import CPU

_PAPER = "RAGEN-2"
_LAKES = ("frozenlake", "frozenlake_slippery")
_GAMES = ("sokoban", *_LAKES)

CLAIMS = (
    Claim(
        "variance_filter_helps",
        _PAPER,
        "main table",
        "The filter that keeps the groups with most of the reward's spread (top-p 0.9) ends higher than none: Sokoban "
        "+16.0, FrozenLake +10.9 points (3B, PPO form); GRPO form +9.0 in Sokoban.",
        (
            Pair("PPO", "variance_filter", "gae_top_p", "gae_all", _GAMES),
            Pair("GRPO", "variance_filter", "group_top_p", "group_all", _GAMES),
        ),
    ),
    Claim(
        "mass_beats_number",
        _PAPER,
        "text",
        "Keeping groups by their mass of spread (top-p) beats keeping a fixed share of them (top-k).",
        (
            Pair("PPO", "variance_filter", "gae_top_p", "gae_top_k", _GAMES),
            Pair("GRPO", "variance_filter", "group_top_p", "group_top_k", _GAMES),
        ),
    ),
    Claim(
        "variance_filter_saves_time",
        _PAPER,
        "text",
        "It saves 26 to 41 % of the time of a step.",
        (
            Pair("PPO", "variance_filter", "gae_all", "gae_top_p", _GAMES),
            Pair("GRPO", "variance_filter", "group_all", "group_top_p", _GAMES),
        ),
        measure=CPU,
        effect=1.25,
    ),
    Claim(
        "information_says_success",
        _PAPER,
        "figure on metrics",
        "Mutual information between prompts and thoughts goes with success (Spearman +0.39); entropy does not (-0.11 "
        "to -0.14).",
        (),
    ),
    Claim(
        "variance_carries_gradient",
        _PAPER,
        "text",
        "Groups with little spread of the reward have a small task gradient: the top quarter reaches 21.1 %, the "
        "lowest 11.0.",
        (),
    ),
)
