"""The claims of RAGEN (arXiv 2504.20073), with the numbers of its figures and tables.

Not asked: that fine-tuning on solved games beats training by rewards in Sokoban (Appendix C: 74.6 against 20.3), since
every run here begins with imitation of a noisy oracle, so that the two cannot be told apart.
"""

from findings.claims import Claim, Pair
from findings.measures import BEST, CPU, FALL, GAIN, KEPT, LASTED, MEMORY, SHORTER, elsewhere
from findings.signs import ENTROPY, GRADIENT, SPREAD, lead

_PAPER = "RAGEN"
_LAKES = ("frozenlake_slippery", "frozenlake")
_NO_BANDIT = ("sokoban", *_LAKES)

COLLAPSE = (
    Claim(
        "ppo_collapses",
        _PAPER,
        "Figure 5",
        "Vanilla StarPO in its PPO form learns and then collapses: bandit 0.75 to 0.20, Sokoban 0.12 to 0, FrozenLake "
        "0.19 to 0.",
        (Pair("PPO", "collapse", "ppo"),),
        measure=FALL,
        effect=0.1,
        headline=True,
    ),
    Claim(
        "ppo_rescued",
        _PAPER,
        "Figures 5 and 9",
        "StarPO-S rescues the PPO form: it ends at 0.98 (bandit), 0.21 (Sokoban), 0.23 (FrozenLake), vanilla at 0.20, "
        "0 and 0.",
        (Pair("PPO", "collapse", "starpo_s_gae", "ppo"),),
        headline=True,
    ),
    Claim(
        "grpo_collapses",
        _PAPER,
        "Figure 5",
        "The GRPO form collapses on the bandit (0 by step 70) and in Sokoban (0 by step 30).",
        (Pair("GRPO", "collapse", "grpo", games=("bandit", "sokoban")),),
        measure=FALL,
        effect=0.1,
    ),
    Claim(
        "grpo_stable_on_the_lake",
        _PAPER,
        "Figure 5",
        "The GRPO form does not collapse on FrozenLake: it stays between 0.20 and 0.24.",
        (Pair("GRPO", "collapse", "grpo", games=_LAKES),),
        kind="no less",
        measure=KEPT,
        effect=0.1,
    ),
    Claim(
        "grpo_collapses_first",
        _PAPER,
        "Figure 5",
        "The PPO form lasts longer than the GRPO form: its decline begins at step 100 instead of 20 (bandit), and at "
        "50 instead of 10 (Sokoban), of 200.",
        (Pair("PPO and GRPO", "collapse", "ppo", "grpo", games=("bandit", "sokoban")),),
        measure=LASTED,
        effect=0.1,
    ),
    Claim(
        "spread_falls_first",
        _PAPER,
        "Figure 6",
        "The std within groups falls before success does: FrozenLake at step 40 and 90, "
        "bandit at 70 and 120.",
        (Pair("GRPO", "collapse", "grpo"), Pair("PPO", "collapse", "ppo")),
        measure=lead(SPREAD),
    ),
    Claim(
        "entropy_turns_first",
        _PAPER,
        "Figure 6",
        "Entropy falls or rises before success falls.",
        (Pair("GRPO", "collapse", "grpo"), Pair("PPO", "collapse", "ppo")),
        measure=lead(ENTROPY),
    ),
    Claim(
        "gradient_grows_first",
        _PAPER,
        "Figure 6, read the other way",
        "The gradient norm grows before success falls (the paper has it as a late sign: spikes at step 170, "
        "110 and 90).",
        (Pair("GRPO", "collapse", "grpo"), Pair("PPO", "collapse", "ppo")),
        measure=lead(GRADIENT),
    ),
    Claim(
        "starpo_s_keeps",
        _PAPER,
        "Figure 9, README",
        "StarPO-S does not collapse: at step 200 it is at its best on the bandit (0.98), in Sokoban (0.21) and on "
        "FrozenLake (0.23).",
        (Pair("GRPO", "collapse", "starpo_s"), Pair("PPO", "collapse", "starpo_s_gae")),
        kind="no less",
        measure=KEPT,
        effect=0.1,
    ),
    Claim(
        "starpo_s_ends_higher",
        _PAPER,
        "Figure 9",
        "StarPO-S ends higher than StarPO.",
        (
            Pair("GRPO", "starpo_s", "starpo_s", "starpo"),
            Pair("GRPO, 4 epochs", "starpo_s", "starpo_s", "vanilla"),
            Pair("PPO", "starpo_s", "starpo_s_gae", "starpo_gae"),
        ),
    ),
    Claim(
        "twenty_percent",
        _PAPER,
        "no single figure",
        "StarPO-S ends 20 % higher than StarPO on average over games.",
        (
            Pair("GRPO", "starpo_s", "starpo_s", "starpo"),
            Pair("PPO", "starpo_s", "starpo_s_gae", "starpo_gae"),
        ),
        effect=0.2,
        pooled=True,
        headline=True,
    ),
)

FILTER = (
    Claim(
        "quarter_beats_all",
        _PAPER,
        "Figure 7",
        "Training on the 25 % most uncertain groups ends higher than on all: FrozenLake 0.23 against 0, Sokoban 0.21 "
        "against 0 (PPO form).",
        (
            Pair("PPO", "filtering", "gae_25", "gae_100"),
            Pair("GRPO", "filtering", "group_25", "group_100"),
        ),
    ),
    Claim(
        "half_beats_all",
        _PAPER,
        "Figure 7",
        "So do 50 %: FrozenLake 0.24 against 0, Sokoban 0.16 against 0.",
        (Pair("PPO", "filtering", "gae_50", "gae_100"),),
    ),
    Claim(
        "three_quarters_are_too_many",
        _PAPER,
        "Figure 7",
        "75 % only delay the collapse on FrozenLake: 0.07 against 0.23 with 25 %.",
        (Pair("PPO", "filtering", "gae_25", "gae_75", _LAKES),),
    ),
    Claim(
        "filter_saves_time",
        _PAPER,
        "Figure 7",
        "A step with 25 % of the groups takes a third of the time: 24 s against 68 s (Sokoban, PPO form).",
        (
            Pair("PPO", "filtering", "gae_100", "gae_25"),
            Pair("GRPO", "filtering", "group_100", "group_25"),
        ),
        measure=CPU,
        effect=2.0,
    ),
    Claim(
        "no_kl_helps",
        _PAPER,
        "Figure 8",
        "Without the KL term training lasts longer and gets higher: best 0.109 where the base is at 0 by step 40 "
        "(Sokoban).",
        (Pair("GRPO", "kl_and_clip", "no_kl", "base"),),
    ),
    Claim(
        "clip_higher_helps",
        _PAPER,
        "Figure 8",
        "So it does with the higher upper clip: best 0.117.",
        (Pair("GRPO", "kl_and_clip", "clip_higher", "base"),),
    ),
    Claim(
        "neither_lasts",
        _PAPER,
        "Figure 8",
        "Neither prevents the collapse: both are at 0 by step 180 to 200 (Sokoban).",
        (
            Pair("GRPO, no KL", "kl_and_clip", "no_kl", games=("sokoban",)),
            Pair("GRPO, clip-higher", "kl_and_clip", "clip_higher", games=("sokoban",)),
        ),
        measure=FALL,
        effect=0.1,
    ),
)

ROLLOUTS = (
    Claim(
        "four_beat_thirty_two",
        _PAPER,
        "Table 2",
        "Of 128 trajectories, 4 responses to each of 32 prompts are better than 32 to each of 4: 21.5 against 18.0 % "
        "on FrozenLake (Sokoban 20.7 against 21.1).",
        (Pair("PPO", "responses_per_prompt", "gae_4", "gae_32"),),
    ),
    Claim(
        "four_beat_one",
        _PAPER,
        "Table 2",
        "And better than a single response: 21.5 against 12.5 % on FrozenLake (Sokoban 20.7 against 19.5).",
        (Pair("PPO", "responses_per_prompt", "gae_4", "gae_1"),),
    ),
    Claim(
        "more_actions_a_turn",
        _PAPER,
        "Table 3",
        "Five actions a turn are better than one, in five turns: 28.1 against 12.1 % (Sokoban), 21.1 against 11.7 "
        "(FrozenLake).",
        (
            Pair(
                "GRPO",
                "actions_per_turn",
                "starpo_s",
                "starpo_s",
                ("5 turns, 5 a turn",),
                "5 turns, 1 a turn",
            ),
        ),
    ),
    Claim(
        "not_too_many_actions",
        _PAPER,
        "Table 3",
        "Seven are worse than six: 22.3 against 33.6 % (Sokoban).",
        (
            Pair(
                "GRPO",
                "actions_per_turn",
                "starpo_s",
                "starpo_s",
                ("5 turns, 6 a turn",),
                "5 turns, 7 a turn",
            ),
        ),
    ),
    Claim(
        "more_actions_at_equal_total",
        _PAPER,
        "Table 3, as its reading has it",
        "Five actions a turn are better than one because of the turn, not because more is done in all: also with ten "
        "actions in all.",
        (
            Pair(
                "GRPO",
                "actions_per_turn",
                "starpo_s",
                "starpo_s",
                ("10 in all, 5 a turn",),
                "10 in all, 1 a turn",
            ),
        ),
    ),
    Claim(
        "fresh_is_better",
        _PAPER,
        "Figure 10",
        "Fresh rollouts end higher than ten updates on one: 0.19 against 0.16 to 0.17 (Sokoban), 0.21 against 0.14 or "
        "less (FrozenLake, best).",
        (Pair("GRPO", "freshness", "online_1", "online_10"),),
    ),
)

BEHAVIOUR = (
    Claim(
        "reasoning_helps_the_bandit",
        _PAPER,
        "Table 4",
        "Reasoning before the answer helps on the bandit: 100 against 81.25 %, and 67.58 against 56.25 with the names "
        "reversed.",
        (),
    ),
    Claim(
        "reasoning_does_not_help_elsewhere",
        _PAPER,
        "Table 4",
        "It does not matter on FrozenLake (19.9 against 19.5 %) and in Sokoban (21.5 against 20.7).",
        (
            Pair("GRPO, notes", "reasoning", "starpo", "starpo", ("with notes",), "without"),
            Pair("GRPO, free notes", "reasoning", "starpo", "starpo", ("with notes of three lengths",), "without"),
        ),
        kind="alike",
    ),
    Claim(
        "thoughts_shrink",
        _PAPER,
        "Figure 11",
        "Training shortens thoughts: 66 to 20 tokens on the bandit, 340 to 104 a trajectory in Sokoban.",
        (Pair("GRPO, free notes", "reasoning", "starpo", games=("with notes of three lengths",)),),
        measure=SHORTER,
        effect=1.25,
    ),
    Claim(
        "learns_its_game",
        _PAPER,
        "README",
        "StarPO-S learns: the bandit to 0.98, Sokoban 0.06 to 0.21, FrozenLake 0.035 to 0.23.",
        (
            Pair("GRPO", "starpo_s", "starpo_s"),
            Pair("PPO", "starpo_s", "starpo_s_gae"),
        ),
        measure=GAIN,
    ),
    Claim(
        "best_is_higher_too",
        _PAPER,
        "Figures 5 and 9",
        "StarPO-S does not only keep, it also reaches more on the way: 0.98 against 0.75 (bandit), 0.21 against 0.12 "
        "(Sokoban), 0.23 against 0.19 (FrozenLake).",
        (
            Pair("GRPO", "collapse", "starpo_s", "grpo"),
            Pair("PPO", "collapse", "starpo_s_gae", "ppo"),
        ),
        measure=BEST,
    ),
    Claim(
        "bandit_carries_over",
        _PAPER,
        "README",
        "A model trained on one pair of bandit names does well on others: 0.98, where chance has 0.5.",
        (Pair("GRPO", "generalisation", "starpo_s", "random", ("bandit",)),),
        measure=elsewhere("other pairs"),
        effect=0.2,
    ),
    Claim(
        "symbols_carry_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better at Sokoban in other symbols: 0.075 to 0.266.",
        (Pair("GRPO", "generalisation", "starpo_s", "warm_start", ("sokoban",)),),
        measure=elsewhere("other symbols"),
    ),
    Claim(
        "larger_rooms_carry_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better in larger rooms with two boxes: 0.004 to 0.027.",
        (Pair("GRPO", "generalisation", "starpo_s", "warm_start", ("sokoban",)),),
        measure=elsewhere("SokobanLarge"),
        effect=0.02,
    ),
    Claim(
        "the_lake_carries_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better on FrozenLake: 0.027 to 0.195.",
        (Pair("GRPO", "generalisation", "starpo_s", "warm_start", ("sokoban",)),),
        measure=elsewhere("FrozenLake"),
    ),
    Claim(
        "lora_is_as_good",
        _PAPER,
        "Appendix D",
        "LoRA with r = 64 and ten times the rate learns as much as all weights: about 0.2 both.",
        (Pair("GRPO", "lora", "lora", "full", _LAKES[1:]),),
        kind="no less",
    ),
    Claim(
        "lora_saves_memory",
        _PAPER,
        "Appendix D",
        "LoRA takes half of the memory: 23 against 48 %.",
        (Pair("GRPO", "lora", "full", "lora", _LAKES[1:]),),
        measure=MEMORY,
        effect=1.5,
    ),
)

CLAIMS = (*COLLAPSE, *FILTER, *ROLLOUTS, *BEHAVIOUR)
