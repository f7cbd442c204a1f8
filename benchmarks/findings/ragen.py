"""The claims of RAGEN (arXiv 2504.20073) on collapse and its cure, with the numbers of its figures.

Not asked: that fine-tuning on solved games beats training by rewards in Sokoban (Appendix C: 74.6 against 20.3), since
every run here begins with imitation of a noisy oracle, so that the two cannot be told apart.
"""

from dataclasses import replace

from findings.claims import COLLAPSED, Claim, Pair
from findings.measures import BEST, CPU, FALL, KEPT, LASTED
from findings.signs import ENTROPY, GRADIENT, SPREAD, lead

_PAPER = "RAGEN"
_LAKES = ("frozenlake_slippery", "frozenlake")
# RAGEN's schedule to the end of its curves: four updates a rollout, 200 rollouts.
_LONG = ("bandit_200", "sokoban_200", "frozenlake_slippery_200", "frozenlake_200")
_GRPO_ALONE = (
    Pair("GRPO", "collapse", "grpo", games=("bandit", "sokoban")),
    Pair("GRPO", "collapse", "grpo_four", games=_LONG[:2]),
)
_GRPO_LAKES = (Pair("GRPO", "collapse", "grpo_four", games=_LONG[2:]),)
_PPO_ALONE = (
    Pair("PPO", "collapse", "ppo", games=("bandit",)),
    Pair("PPO", "collapse", "ppo_four", games=_LONG),
)
_VANILLA = (*_GRPO_ALONE, *_GRPO_LAKES, *_PPO_ALONE)
_RESCUED = (
    Pair("PPO", "collapse", "starpo_s_gae", "ppo", ("bandit",), collapses="ppo"),
    Pair("PPO", "collapse", "starpo_s_gae", "ppo_four", _LONG, collapses="ppo_four"),
)
_MORE_ON_AVERAGE = (
    Pair("PPO", "collapse", "starpo_s_gae", "ppo_four", _LONG),
    Pair("GRPO", "collapse", "starpo_s", "grpo_four", _LONG),
)
_RESCUED_GRPO = (
    Pair("GRPO", "collapse", "starpo_s", "grpo", ("bandit", "sokoban"), collapses="grpo"),
    Pair("GRPO", "collapse", "starpo_s", "grpo_four", _LONG, collapses="grpo_four"),
)


def _each_change(theirs: str = "") -> tuple[Pair, ...]:
    """Without the KL term, and with the higher clip, where the base is to collapse; against a variant, or alone."""
    return tuple(
        Pair(f"PPO, {name}", "kl_and_clip", f"ppo_four_{variant}", theirs, ("sokoban_200",), collapses="ppo_four")
        for name, variant in (("no KL", "no_kl"), ("clip-higher", "clip_higher"))
    )


_KL_GAMES = ("sokoban", "frozenlake_slippery", "frozenlake", "bandit")
_FILTERED = ("sokoban_200", "bandit", *_LAKES)
COLLAPSE = (
    Claim(
        "ppo_collapses",
        _PAPER,
        "Figure 5",
        "Vanilla StarPO in its PPO form learns and then collapses: bandit 0.75 to 0.20, Sokoban 0.12 to 0, FrozenLake "
        "0.19 to 0.",
        _PPO_ALONE,
        measure=FALL,
        effect=COLLAPSED,
        headline=True,
    ),
    Claim(
        "ppo_rescued",
        _PAPER,
        "Figures 5 and 9, Table 4",
        "StarPO-S rescues the PPO form: it ends at 1.00 (bandit), 0.21 (Sokoban), 0.23 (FrozenLake), vanilla at 0.20, "
        "0 and 0.",
        _RESCUED,
        headline=True,
    ),
    Claim(
        "grpo_rescued",
        _PAPER,
        "Figures 5 and 9, Table 4",
        "StarPO-S rescues the GRPO form: it ends at 1.00 (bandit) and 0.21 (Sokoban), vanilla at 0.",
        _RESCUED_GRPO,
        headline=True,
    ),
    Claim(
        "grpo_collapses",
        _PAPER,
        "Figure 5",
        "The GRPO form collapses on the bandit (0 by step 70) and in Sokoban (0 by step 30).",
        _GRPO_ALONE,
        measure=FALL,
        effect=COLLAPSED,
    ),
    Claim(
        "grpo_stable_on_the_lake",
        _PAPER,
        "Figure 5",
        "The GRPO form does not collapse on FrozenLake: it stays between 0.20 and 0.24.",
        _GRPO_LAKES,
        kind="no less",
        measure=KEPT,
        effect=COLLAPSED,
    ),
    Claim(
        "grpo_collapses_first",
        _PAPER,
        "Figure 5",
        "The PPO form lasts longer than the GRPO form: on the bandit it is at its best at step 100, the GRPO form at 0 "
        "by 70; in Sokoban it is at 0 by 130, the GRPO form by 30.",
        (
            Pair("PPO and GRPO", "collapse", "ppo", "grpo", ("bandit",)),
            Pair("PPO and GRPO", "collapse", "ppo_four", "grpo_four", _LONG[:2]),
        ),
        measure=LASTED,
        effect=0.1,
    ),
    Claim(
        "spread_falls_first",
        _PAPER,
        "Figure 6",
        "The std within groups falls before success does: FrozenLake at step 40 and 90, "
        "bandit at 70 and 120.",
        _VANILLA,
        measure=lead(SPREAD),
    ),
    Claim(
        "entropy_turns_first",
        _PAPER,
        "Figure 6",
        "Entropy falls or rises before success falls.",
        _VANILLA,
        measure=lead(ENTROPY),
    ),
    Claim(
        "gradient_grows_first",
        _PAPER,
        "Figure 6, read the other way",
        "The gradient norm grows before success falls (the paper has it as a late sign: spikes at step 170, "
        "110 and 90).",
        _VANILLA,
        measure=lead(GRADIENT),
    ),
    Claim(
        "starpo_s_keeps",
        _PAPER,
        "Figure 9, Table 4, README",
        "StarPO-S does not collapse where vanilla StarPO does: at step 200 it is at its best on the bandit (1.00), in "
        "Sokoban (0.21) and on FrozenLake (0.23).",
        (
            Pair("GRPO", "collapse", "starpo_s", games=("bandit", "sokoban"), collapses="grpo"),
            Pair("GRPO", "collapse", "starpo_s", games=_LONG, collapses="grpo_four"),
            Pair("PPO", "collapse", "starpo_s_gae", games=("bandit",), collapses="ppo"),
            Pair("PPO", "collapse", "starpo_s_gae", games=_LONG, collapses="ppo_four"),
        ),
        kind="no less",
        measure=KEPT,
        effect=COLLAPSED,
    ),
    Claim(
        "starpo_s_ends_higher",
        _PAPER,
        "Figure 9",
        "StarPO-S ends higher than StarPO.",
        (
            Pair("GRPO", "starpo_s", "starpo_s", "starpo"),
            Pair("GRPO, 4 epochs", "starpo_s", "starpo_s", "vanilla", ("bandit", "frozenlake", "sokoban")),
            Pair("PPO", "starpo_s", "starpo_s_gae", "starpo_gae"),
        ),
    ),
    Claim(
        "twenty_percent",
        _PAPER,
        "no single figure",
        "StarPO-S ends 20 % higher than vanilla StarPO on average over games, with RAGEN's schedule.",
        _MORE_ON_AVERAGE,
        effect=0.2,
        pooled=True,
        headline=True,
    ),
    Claim(
        "twenty_percent_at_one_update",
        _PAPER,
        "no single figure",
        "StarPO-S ends 20 % higher than StarPO on average over games, with one update a rollout.",
        (
            Pair("GRPO", "starpo_s", "starpo_s", "starpo"),
            Pair("PPO", "starpo_s", "starpo_s_gae", "starpo_gae"),
        ),
        effect=0.2,
        pooled=True,
        headline=True,
    ),
    Claim(
        "learns_its_game",
        _PAPER,
        "Table 4, README",
        "StarPO-S learns: the bandit to 1.00, Sokoban 0.06 to 0.21, FrozenLake 0.035 to 0.23.",
        (
            Pair("GRPO", "starpo_s", "starpo_s", "warm_start"),
            Pair("PPO", "starpo_s", "starpo_s_gae", "warm_start"),
        ),
    ),
    Claim(
        "best_is_higher_too",
        _PAPER,
        "Figures 5 and 9, Table 4",
        "StarPO-S does not only keep, it also reaches more on the way: 1.00 against 0.75 (bandit), 0.21 against 0.12 "
        "(Sokoban), 0.23 against 0.19 (FrozenLake).",
        (
            *(replace(pair, collapses="") for pair in (*_RESCUED_GRPO, *_RESCUED)),
        ),
        effect=0.04,
        measure=BEST,
    ),
)

FILTER = (
    Claim(
        "quarter_beats_all",
        _PAPER,
        "Figure 7",
        "Training on the 25 % most uncertain groups ends higher than on all, which collapse: FrozenLake 0.23 against "
        "0, Sokoban 0.21 against 0 (PPO form; in the GRPO form all shares end near 0 there).",
        (
            Pair("PPO", "filtering", "gae_25", "gae_100", _FILTERED, collapses="gae_100"),
            Pair("GRPO", "filtering", "group_25", "group_100", ("frozenlake", "bandit"), collapses="group_100"),
        ),
    ),
    Claim(
        "half_beats_all",
        _PAPER,
        "Figure 7",
        "Training on the 50 % most uncertain groups ends higher than on all, which collapse: FrozenLake 0.24 against "
        "0, Sokoban 0.16 against 0 (PPO form).",
        (Pair("PPO", "filtering", "gae_50", "gae_100", _FILTERED, collapses="gae_100"),),
    ),
    Claim(
        "three_quarters_are_too_many",
        _PAPER,
        "Figure 7",
        "Training on 75 % of the groups only delays the collapse on FrozenLake: it ends at 0.07, with 25 % at 0.23.",
        (Pair("PPO", "filtering", "gae_25", "gae_75", _LAKES, collapses="gae_75"),),
    ),
    Claim(
        "filter_saves_time",
        _PAPER,
        "Figure 7",
        "A step with 25 % of the groups takes a third of the time: 24 s against 68 s (Sokoban, PPO form).",
        (
            Pair("PPO", "filtering", "gae_100", "gae_25", _FILTERED),
            Pair("GRPO", "filtering", "group_100", "group_25", ("frozenlake", "bandit")),
        ),
        measure=CPU,
        effect=2.0,
    ),
    Claim(
        "starpo_s_saves_time",
        _PAPER,
        "Figure 7, of the whole recipe",
        "StarPO-S, which trains on 25 % of the groups and without the KL term, takes less than half of the time of "
        "StarPO.",
        (
            Pair("PPO", "starpo_s", "starpo_gae", "starpo_s_gae"),
            Pair("GRPO", "starpo_s", "starpo", "starpo_s"),
        ),
        measure=CPU,
        effect=2.0,
    ),
    Claim(
        "no_kl_helps",
        _PAPER,
        "Figure 8",
        "Without the KL term training gets higher: best 0.109 in Sokoban, where the base is at 0 by step 40. Its best "
        "is not published (0.12 in Figure 5).",
        (
            Pair("PPO", "kl_and_clip", "ppo_four_no_kl", "ppo_four", ("sokoban_200",)),
            Pair("PPO", "kl_and_clip", "gae_no_kl", "gae_base", _KL_GAMES),
            Pair("GRPO", "kl_and_clip", "no_kl", "base", ("frozenlake", "bandit")),
        ),
        measure=BEST,
    ),
    Claim(
        "clip_higher_helps",
        _PAPER,
        "Figure 8",
        "With the higher upper clip training gets higher: best 0.117 in Sokoban, where the base's best is not "
        "published (0.12 in Figure 5).",
        (
            Pair("PPO", "kl_and_clip", "ppo_four_clip_higher", "ppo_four", ("sokoban_200",)),
            Pair("PPO", "kl_and_clip", "gae_clip_higher", "gae_base", _KL_GAMES),
            Pair("GRPO", "kl_and_clip", "clip_higher", "base", ("frozenlake", "bandit")),
        ),
        measure=BEST,
    ),
    Claim(
        "each_delays_the_collapse",
        _PAPER,
        "Figure 8",
        "Without the KL term, and with the higher upper clip, training lasts longer: at 0 by step 180 to 200, the base "
        "by 40 (Sokoban).",
        _each_change("ppo_four"),
        measure=LASTED,
        effect=0.1,
    ),
    Claim(
        "neither_lasts",
        _PAPER,
        "Figure 8",
        "Neither leaving out the KL term nor the higher clip prevents the collapse: both are at 0 by step 180 to 200 "
        "(Sokoban).",
        _each_change(),
        measure=FALL,
        effect=COLLAPSED,
    ),
)

CLAIMS = (*COLLAPSE, *FILTER)
