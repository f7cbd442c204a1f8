"""The claims of papers on credit for single steps: GiGPO, SAMPO, MT-GRPO, Turn-PPO and VAGEN's bi-level GAE.

Their numbers are for shops and households with models of 1.5 to 7 billion parameters (second-hand where said so in the
pages); here the games stand for long episodes.
"""

from findings.claims import Claim, Pair

# Not the bandit: its episodes are one turn, where credit for turns is credit for trajectories.
_SHORT = ("frozenlake", "sokoban")
_LONG = ("sokoban, 10 turns", "sokoban, 20 turns", "toyshop")
_FILTERED = ("sokoban, 10 turns", "toyshop")

CLAIMS = (
    Claim(
        "gigpo_beats_grpo",
        "GiGPO (2505.10978)",
        "main table",
        "Credit for steps from the same state beats credit for whole trajectories: WebShop 67.4 against 56.8 (1.5B), "
        "75.2 against 66.1 (7B).",
        (
            Pair("10 actions", "learning_curves", "gigpo", "starpo", _SHORT),
            Pair("long episodes", "step_credit", "gigpo", "starpo", _LONG),
        ),
    ),
    Claim(
        "gigpo_beats_ppo",
        "GiGPO (2505.10978)",
        "main table",
        "Credit for steps from the same state beats the PPO form: WebShop 67.4 against 51.5, ALFWorld 86.1 "
        "against 54.4 (1.5B).",
        (
            Pair("10 actions", "learning_curves", "gigpo", "starpo_gae", _SHORT),
            Pair("long episodes", "step_credit", "gigpo", "starpo_gae", _LONG),
        ),
    ),
    Claim(
        "filter_hurts_grpo",
        "SAMPO (2602.21534)",
        "ablation",
        "Leaving out groups without a spread hurts GRPO: -7.6 %.",
        (Pair("GRPO", "step_credit", "starpo", "starpo_filter", _FILTERED),),
    ),
    Claim(
        "filter_helps_gigpo",
        "SAMPO (2602.21534)",
        "ablation",
        "Leaving out groups without a spread helps GiGPO: +11 %.",
        (Pair("GiGPO", "step_credit", "gigpo_filter", "gigpo", _FILTERED),),
    ),
    Claim(
        "turn_rewards_help",
        "MT-GRPO (2505.11821)",
        "main table",
        "Advantages of turns from their own rewards beat those of whole trajectories: exact match 50 % "
        "against 20 to 30 (first version; 0.447 against 0.432 in a later one, second-hand).",
        (Pair("long episodes", "step_credit", "mt_grpo", "starpo", _LONG[:1]),),
    ),
    Claim(
        "turn_gae_helps",
        "Turn-PPO (2512.17008)",
        "main table",
        "A critic of turns beats a critic of tokens in long episodes.",
        (Pair("long episodes", "step_credit", "turn_gae", "starpo_gae", _LONG),),
    ),
    Claim(
        "bi_level_helps",
        "VAGEN (2510.16907)",
        "ablation",
        "Values of turns and of tokens together (bi-level GAE) beat those of tokens.",
        (
            Pair("10 actions", "learning_curves", "bi_level", "starpo_gae", _SHORT),
            Pair("long episodes", "step_credit", "bi_level", "starpo_gae", _LONG),
        ),
    ),
)
