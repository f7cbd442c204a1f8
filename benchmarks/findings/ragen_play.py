"""The claims of RAGEN (arXiv 2504.20073) on how rollouts are played, on thoughts, other games, and LoRA.

Not asked: that seven actions a turn are worse than six in Sokoban (Table 3: 22.3 against 33.6 %; on FrozenLake, where
seven are run here, it has 19.5 against 18.4).
"""

from findings.claims import Claim, Pair
from findings.measures import MEMORY, SHORTER, elsewhere

_PAPER = "RAGEN"
FORMS = (("GRPO", ""), ("PPO", "_gae"))
_NOT_SOKOBAN = ("bandit", "frozenlake", "frozenlake_slippery")  # where the paper's own difference is smaller
FREE_NOTES = "frozenlake, with notes of three lengths"
_PLAIN = tuple((form, f"starpo{suffix}") for form, suffix in FORMS)


def _notes(game: str) -> tuple[Pair, ...]:
    """StarPO with notes against StarPO without, in both forms."""
    return tuple(
        Pair(f"{form}, notes", "reasoning", variant, variant, (f"{game}, with notes",), f"{game}, without")
        for form, variant in _PLAIN
    )


_NOTES_ON_THE_BANDIT = _notes("bandit")


def _each_form(theirs: str, game: str) -> tuple[Pair, ...]:
    """StarPO-S trained on that game, in both forms, against a baseline."""
    return tuple(Pair(form, "generalisation", f"starpo_s{suffix}", theirs, (game,)) for form, suffix in FORMS)


def _turns(ours: int, theirs: int, total: str = "5 turns") -> tuple[Pair, ...]:
    """So many actions a turn against so many, in every game and form."""
    games = ((game, *form) for game in ("frozenlake", "sokoban", "frozenlake_slippery") for form in FORMS)
    return tuple(
        Pair(
            form,
            "actions_per_turn",
            f"starpo_s{suffix}",
            f"starpo_s{suffix}",
            (f"{game}, {total}, {ours} a turn",),
            f"{game}, {total}, {theirs} a turn",
        )
        for game, form, suffix in games
    )


ROLLOUTS = (
    Claim(
        "four_beat_thirty_two",
        _PAPER,
        "Table 2",
        "Of 128 trajectories, 4 responses to each of 32 prompts are better than 32 to each of 4: 21.5 against 18.0 % "
        "on FrozenLake (not in Sokoban: 20.7 against 21.1).",
        (Pair("PPO", "responses_per_prompt", "gae_4", "gae_32", ("frozenlake",)),),
        effect=0.035,
    ),
    Claim(
        "four_beat_one",
        _PAPER,
        "Table 2",
        "Of 128 trajectories, 4 responses a prompt are better than a single one: 21.5 against 12.5 % on FrozenLake "
        "(Sokoban 20.7 against 19.5).",
        (
            Pair("PPO", "responses_per_prompt", "gae_4", "gae_1", _NOT_SOKOBAN),
            Pair("PPO", "responses_per_prompt", "gae_4", "gae_1", ("sokoban",), effect=0.012),
        ),
    ),
    Claim(
        "four_beat_sixteen",
        _PAPER,
        "Table 2",
        "Of 128 trajectories, 4 responses a prompt are better than RAGEN's own 16: 21.5 against 19.5 % on FrozenLake "
        "(Sokoban 20.7 against 20.3).",
        (
            Pair("PPO", "responses_per_prompt", "gae_4", "gae_16", _NOT_SOKOBAN),
            Pair("PPO", "responses_per_prompt", "gae_4", "gae_16", ("sokoban",), effect=0.004),
            Pair("GRPO", "responses_per_prompt", "group_4", "group_16", ("frozenlake", "bandit")),
        ),
        effect=0.02,
    ),
    Claim(
        "more_actions_a_turn",
        _PAPER,
        "Table 3",
        "Six actions a turn are better than one, in five turns: 33.6 against 12.1 % (Sokoban), 18.4 against 11.7 "
        "(FrozenLake).",
        _turns(6, 1),
    ),
    Claim(
        "more_actions_at_equal_total",
        _PAPER,
        "Table 3, as its reading has it",
        "Six actions a turn are better than one because of the turn, not because more is done in all: also with ten "
        "actions in all.",
        _turns(6, 1, "10 in all"),
    ),
    Claim(
        "fresh_is_better",
        _PAPER,
        "Figure 10",
        "Fresh rollouts end higher than ten updates on one: 0.19 against 0.16 to 0.17 (Sokoban), 0.21 against 0.14 or "
        "less (FrozenLake, best).",
        (
            Pair("PPO", "freshness", "gae_online_1", "gae_online_10"),
            Pair("GRPO", "freshness", "online_1", "online_10", ("frozenlake", "sokoban", "bandit")),
        ),
        effect=0.02,
    ),
)

BEHAVIOUR = (
    Claim(
        "reasoning_helps_the_bandit",
        _PAPER,
        "Table 4",
        "Reasoning before the answer helps on the bandit: 100 against 81.25 %.",
        _NOTES_ON_THE_BANDIT,
    ),
    Claim(
        "reasoning_helps_the_reversed_bandit",
        _PAPER,
        "Table 4",
        "Reasoning before the answer helps on the bandit with reversed names: 67.58 against 56.25 %. The paper trains "
        "there, too; here a model that was trained on the other bandit is evaluated on it.",
        _NOTES_ON_THE_BANDIT,
        measure=elsewhere("BanditRev"),
    ),
    Claim(
        "reasoning_does_not_help_elsewhere",
        _PAPER,
        "Table 4",
        "Reasoning before the answer does not matter in Sokoban (21.5 against 20.7 %), nor for what the model trained "
        "there does on FrozenLake (19.9 against 19.5). Here a model is trained on each lake. (With other symbols it "
        "harms, 18.75 against 26.17 %, which is not asked.)",
        (
            *_notes("frozenlake"),
            *_notes("sokoban"),
            *_notes("frozenlake_slippery"),
            Pair("GRPO, free notes", "reasoning", "starpo", "starpo", (FREE_NOTES,), "frozenlake, without"),
        ),
        kind="alike",
    ),
    Claim(
        "thoughts_shrink",
        _PAPER,
        "Figure 11",
        "Training shortens thoughts: 66 to 20 tokens on the bandit, 340 to 104 a trajectory in Sokoban.",
        (
            *(
                Pair(f"{form}, notes", "reasoning", variant, "warm_start", (f"{game}, with notes",))
                for form, variant in _PLAIN
                for game in ("bandit", "sokoban")
            ),
            Pair("GRPO, free notes", "reasoning", "starpo", "warm_start", (FREE_NOTES,)),
        ),
        measure=SHORTER,
        effect=1.25,
    ),
    Claim(
        "bandit_carries_over",
        _PAPER,
        "README",
        "A model trained on one pair of bandit names does well on others: 0.98, where chance has 0.5.",
        _each_form("random", "bandit"),
        measure=elsewhere("other pairs"),
        effect=0.2,
    ),
    Claim(
        "symbols_carry_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better at Sokoban in other symbols: 0.075 to 0.266.",
        _each_form("warm_start", "sokoban"),
        measure=elsewhere("other symbols"),
    ),
    Claim(
        "larger_rooms_carry_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better in larger rooms with two boxes: 0.004 to 0.027.",
        _each_form("warm_start", "sokoban"),
        measure=elsewhere("SokobanLarge"),
        effect=0.02,
    ),
    Claim(
        "the_lake_carries_over",
        _PAPER,
        "README",
        "Trained on Sokoban, better on FrozenLake, which it was not trained on: 0.027 to 0.195 (here a tenth of the "
        "demonstrations is of FrozenLake).",
        _each_form("warm_start", "sokoban"),
        measure=elsewhere("FrozenLake"),
    ),
    Claim(
        "lora_is_as_good",
        _PAPER,
        "Appendix D",
        "LoRA with r = 64 and ten times the rate learns as much as all weights: about 0.2 both.",
        (Pair("GRPO", "lora", "lora", "full", ("frozenlake",)),),
        kind="no less",
    ),
    Claim(
        "lora_saves_memory",
        _PAPER,
        "Appendix D",
        "LoRA takes half of the memory: 23 against 48 %.",
        (Pair("GRPO", "lora", "full", "lora", ("frozenlake",)),),
        measure=MEMORY,
        effect=1.5,
    ),
)

CLAIMS = (*ROLLOUTS, *BEHAVIOUR)
