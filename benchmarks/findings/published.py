"""The papers' figures and tables as numbers, each with the runs here that answer the same question.

Numbers are read from figures where the paper has no table. Where the paper says a range or a bound, it is said in
``note``. Sources: RAGEN, arXiv 2504.20073; RAGEN-2, 2604.06268; A*-PO, 2505.20686; GiGPO, 2505.10978.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from findings.claims import GAMES
from findings.measures import BEST, CPU, DISTANCE, SHORTER, SUCCESS, Measure, Run, elsewhere
from findings.ragen_play import FORMS, FREE_NOTES
from findings.signs import GRADIENT, SPREAD

Value = float | None


def _tokens(run: Run) -> float | None:
    """Logarithm of the tokens of a reply, from the measure of how short it is."""
    short = SHORTER.of(run)
    return None if short is None else -short


LENGTH = Measure("tokens of a reply", _tokens, ratio=True)


@dataclass(frozen=True)
class Ours:
    """One value measured here.

    Attributes:
        task: Of the question; ``{}`` stands for the game.
        variant: Of that task, ``warm_start`` or ``random``.
        measure: Read from its runs.
        began: Of a warm start: a variant; without a value where its runs began with another making of it.
        theirs: If given, the value is the ratio or difference to this variant.
        question: Whose results hold the runs; without it, the comparison's.
    """

    task: str
    variant: str
    measure: Measure = SUCCESS
    theirs: str = ""
    question: str = ""
    began: str = ""


@dataclass(frozen=True)
class Comparison:
    """A figure or table of a paper, and the same of the results here.

    Attributes:
        question: On whose page it stands; its results are drawn.
        source: Paper, figure or table.
        across: What the categories are.
        categories: Along the horizontal axis.
        published: Series → a value a category; ``None`` where the paper has none.
        here: Series → the same; ``{}`` in its name stands for each of the games.
        games: That are looked for in the results.
        quantity: On the vertical axis.
        ordered: Categories are numbers in order, so that lines join them.
        note: What must be known of the published numbers.
        name: Of this comparison, where the question has several.
    """

    question: str
    source: str
    across: str
    categories: Sequence[str]
    published: Mapping[str, Sequence[Value]]
    here: Mapping[str, Sequence[Ours]]
    games: Sequence[str] = GAMES
    quantity: str = "success"
    ordered: bool = False
    note: str = ""
    name: str = ""

    @property
    def picture(self) -> str:
        """The name of its PNG."""
        return "_".join(part for part in (self.question, self.name, "published.png") if part)


def _each(variants: Sequence[str], task: str = "{}", measure: Measure = SUCCESS) -> tuple[Ours, ...]:
    return tuple(Ours(task, variant, measure) for variant in variants)


def _best_and_end(variant: str, task: str = "{}", question: str = "") -> tuple[Ours, ...]:
    return tuple(Ours(task, variant, measure, question=question) for measure in (BEST, SUCCESS))


def _lengths(task: str, variant: str) -> tuple[Ours, ...]:
    return Ours(task, "warm_start", LENGTH, began=variant), Ours(task, variant, LENGTH)


def _turns(total: str, variant: str) -> tuple[Ours, ...]:
    """One to seven actions a turn. Two a turn are ten in five turns: that task is in both."""
    totals = [_FIXED if each == 2 else total for each in _ACTIONS]
    return tuple(Ours(f"{{}}, {named}, {each} a turn", variant) for each, named in zip(_ACTIONS, totals, strict=True))


_CHANGED = ("ppo_four", "ppo_four_no_kl", "ppo_four_clip_higher")
_SHARES, _SIZES, _ACTIONS, _ONLINE = (25, 50, 75, 100), (32, 16, 8, 4, 2, 1), range(1, 8), (1, 2, 5, 10)
_ELSEWHERE = {"other symbols": (0.075, 0.266), "SokobanLarge": (0.004, 0.027), "FrozenLake": (0.027, 0.195)}
_FREE, _FIXED = "5 turns", "10 in all"
_FORMS = FORMS[::-1]  # the papers' form first
_NOTES = [
    (notes, task, form, variant)
    for notes, task in (("notes", "with notes"), ("no notes", "without"))
    for form, variant in ((", GRPO", "starpo"), (", PPO", "starpo_gae"))
]

COMPARISONS = (
    Comparison(
        "collapse",
        "RAGEN, Figure 5",
        "vanilla StarPO",
        ("best", "at the end"),
        {
            "bandit (PPO, 4 updates)": (0.75, 0.20),
            "sokoban (PPO, 4 updates)": (0.12, 0.0),
            "frozenlake_slippery (PPO, 4 updates)": (0.19, 0.0),
            "bandit (GRPO, 4 updates)": (None, 0.0),
            "sokoban (GRPO, 4 updates)": (None, 0.0),
            "frozenlake_slippery (GRPO, 4 updates)": (None, 0.22),
        },
        {
            "bandit (PPO, 4 passes)": _best_and_end("ppo", task="bandit"),
            "bandit (GRPO, 1 update)": _best_and_end("grpo", task="bandit"),
            "sokoban (GRPO, 1 update)": _best_and_end("grpo", task="sokoban"),
            "{} (PPO, 4 updates)": _best_and_end("ppo_four", task="{}_200"),
            "{} (GRPO, 4 updates)": _best_and_end("grpo_four", task="{}_200"),
        },
        note="the GRPO form on FrozenLake is between 0.20 and 0.24",
    ),
    Comparison(
        "starpo_s",
        "RAGEN, Figures 5 and 9, Table 4, PPO form",
        "",
        ("vanilla, best", "vanilla, end", "StarPO-S, end"),
        {
            "bandit (PPO, RAGEN's schedule)": (0.75, 0.20, 1.0),
            "sokoban (PPO, RAGEN's schedule)": (0.12, 0.0, 0.21),
            "frozenlake_slippery (PPO, RAGEN's schedule)": (0.19, 0.0, 0.23),
        },
        {
            "{} (PPO, RAGEN's schedule)": (
                *_best_and_end("ppo_four", "{}_200", "collapse"),
                Ours("{}_200", "starpo_s_gae", question="collapse"),
            ),
            "{} (GRPO, vanilla in 4 epochs)": (*_best_and_end("vanilla"), Ours("{}", "starpo_s")),
        },
    ),
    Comparison(
        "filtering",
        "RAGEN, Figure 7, PPO form",
        "share of the groups that is kept, %",
        [str(share) for share in _SHARES],
        {
            "frozenlake_slippery (PPO, 200 rollouts)": (0.23, 0.24, 0.07, 0.0),
            "sokoban (PPO, 200 rollouts)": (0.21, 0.16, 0.19, 0.0),
        },
        {
            "{} (PPO)": _each([f"gae_{share}" for share in _SHARES]),
            "{} (PPO, 200 rollouts)": _each([f"gae_{share}" for share in _SHARES], task="{}_200"),
            "{} (GRPO)": _each([f"group_{share}" for share in _SHARES]),
        },
        ordered=True,
    ),
    Comparison(
        "kl_and_clip",
        "RAGEN, Figure 8, Sokoban, PPO form",
        "",
        ("base", "no KL", "clip-higher"),
        {
            "sokoban (PPO, 200 rollouts), best": (None, 0.109, 0.117),
            "sokoban (PPO, 200 rollouts), end": (0.0, 0.0, 0.0),
        },
        {
            "{} (PPO, 200 rollouts), best": _each(_CHANGED, "{}_200", BEST),
            "{} (PPO, 200 rollouts), end": _each(_CHANGED, "{}_200"),
            "{} (PPO), best": _each(["gae_base", "gae_no_kl", "gae_clip_higher"], measure=BEST),
            "{} (PPO), end": _each(["gae_base", "gae_no_kl", "gae_clip_higher"]),
            "{} (GRPO), end": _each(["base", "no_kl", "clip_higher"]),
        },
    ),
    Comparison(
        "responses_per_prompt",
        "RAGEN, Table 2",
        "responses a prompt",
        [str(size) for size in _SIZES],
        {
            "sokoban (PPO)": (0.2109, 0.2031, 0.2031, 0.2070, 0.1992, 0.1953),
            "sokoban, other symbols (PPO)": (0.2022, 0.2148, 0.1953, 0.2539, 0.2500, 0.2227),
            "frozenlake_slippery (PPO)": (0.1797, 0.1953, 0.1719, 0.2148, 0.1250, 0.1250),
        },
        {
            "{} (PPO)": _each([f"gae_{size}" for size in _SIZES]),
            "{} (GRPO)": _each([f"group_{size}" for size in _SIZES]),
        },
        ordered=True,
    ),
    Comparison(
        "actions_per_turn",
        "RAGEN, Table 3",
        "actions a turn, at most",
        [str(each) for each in _ACTIONS],
        {
            "sokoban": (0.1211, 0.1641, 0.1953, 0.2695, 0.2813, 0.3359, 0.2227),
            "sokoban, other symbols": (0.1367, 0.2109, 0.1953, 0.2695, 0.2578, 0.3164, 0.2852),
            "sokoban, larger": (0.0117, 0.0352, 0.0195, 0.0508, 0.0625, 0.0664, 0.0391),
            "frozenlake_slippery": (0.1172, 0.1836, 0.2088, 0.2070, 0.2109, 0.1836, 0.1953),
        },
        {
            f"{{}}, {total} ({form})": _turns(total, f"starpo_s{suffix}")
            for total in (_FREE, _FIXED)
            for form, suffix in _FORMS
        },
        games=("frozenlake", "sokoban", "frozenlake_slippery"),
        ordered=True,
        note="five turns, so that more actions a turn are more in all",
    ),
    Comparison(
        "freshness",
        "RAGEN, Figure 10",
        "updates on one rollout",
        [str(updates) for updates in _ONLINE],
        {"sokoban, end": (0.19, 0.165, 0.165, 0.165), "frozenlake_slippery, best": (0.21, 0.14, 0.14, 0.14)},
        {
            "frozenlake_slippery (PPO), best": _each(
                [f"gae_online_{updates}" for updates in _ONLINE], "frozenlake_slippery", BEST
            ),
            "{} (PPO), end": _each([f"gae_online_{updates}" for updates in _ONLINE]),
            "{} (GRPO), end": _each([f"online_{updates}" for updates in _ONLINE]),
        },
        ordered=True,
        note="Sokoban, 2 to 10: 0.16 to 0.17; FrozenLake, 2 to 10: 0.14 or less",
    ),
    Comparison(
        "reasoning",
        "RAGEN, Table 4",
        "",
        ("without reasoning", "with reasoning"),
        {
            "bandit": (0.8125, 1.0),
            "bandit, reversed": (0.5625, 0.6758),
            "sokoban": (0.2073, 0.2148),
            "sokoban, other symbols": (0.2617, 0.1875),
            "sokoban, larger": (0.0273, 0.0234),
            "sokoban, on FrozenLake": (0.1953, 0.1992),
        },
        {
            **{
                f"{{}} ({form})": tuple(Ours(f"{{}}, {kind}", f"starpo{suffix}") for kind in ("without", "with notes"))
                for form, suffix in _FORMS
            },
            "frozenlake, free notes (GRPO)": (Ours("frozenlake, without", "starpo"), Ours(FREE_NOTES, "starpo")),
        },
        note="all columns but the bandit's are of a model trained in Sokoban. Here: plain StarPO",
    ),
    Comparison(
        "reasoning",
        "RAGEN, Figure 11",
        "",
        ("at the start", "at the end"),
        {
            "bandit (thoughts)": (66.0, 20.0),
            "bandit (thoughts, reversed)": (69.0, 37.0),
            "bandit (no thoughts)": (None, 12.0),
            "sokoban (thoughts)": (340.0, 104.0),
            "sokoban (no thoughts)": (None, 57.0),
        },
        {
            **{f"{{}} ({notes}{form})": _lengths(f"{{}}, {task}", variant) for notes, task, form, variant in _NOTES},
            "frozenlake (free notes, GRPO)": _lengths(FREE_NOTES, "starpo"),
        },
        quantity="tokens",
        note="of a thought on the bandit, of a trajectory in Sokoban. Here: of a reply, its note and its answer, where "
        "that of the warm start is kept",
        name="lengths",
    ),
    Comparison(
        "generalisation",
        "RAGEN, README: trained on Sokoban",
        "",
        ("before", "after"),
        _ELSEWHERE,
        {
            f"{name} ({form})": tuple(
                Ours("sokoban", variant, elsewhere(name)) for variant in ("warm_start", f"starpo_s{suffix}")
            )
            for name in _ELSEWHERE
            for form, suffix in _FORMS
        },
    ),
    Comparison(
        "lora",
        "RAGEN, Appendix D",
        "",
        ("all weights", "LoRA, 10 × the rate"),
        {"sokoban": (0.2, 0.2)},
        {"{} (GRPO)": _each(["full", "lora"])},
        note="about 0.2 both, in Sokoban",
    ),
    Comparison(
        "astar_po",
        "A*-PO, MATH: 1.5, 3 and 7 B",
        "of what A*-PO takes",
        ("time, GRPO", "time, PPO", "KL, GRPO", "KL, PPO"),
        {
            "1.5 B": (15.01 / 6.92, 10.84 / 6.92, 0.091 / 0.069, 0.151 / 0.069),
            "3 B": (18.26 / 8.78, 13.59 / 8.78, 0.102 / 0.082, 0.111 / 0.082),
            "7 B": (20.15 / 11.01, 20.53 / 11.01, 0.172 / 0.078, 0.133 / 0.078),
        },
        {
            "{}": tuple(
                Ours("{}", variant, measure, "astar_po")
                for measure in (CPU, DISTANCE)
                for variant in ("starpo", "starpo_gae")
            )
        },
        games=("bandit", "frozenlake", "sokoban", "toyshop"),
        quantity="times",
    ),
    Comparison(
        "variance_filter",
        "RAGEN-2, main table, 3 B",
        "",
        ("no filter", "top-p 0.9"),
        {
            "sokoban (PPO)": (0.129, 0.289),
            "frozenlake (PPO)": (0.670, 0.779),
            "sokoban (GRPO)": (0.121, 0.211),
            "frozenlake (GRPO)": (0.709, 0.732),
        },
        {
            "{} (PPO)": _each(["gae_100", "gae_variance"], measure=BEST),
            "{} (GRPO)": _each(["group_100", "group_variance"], measure=BEST),
        },
        note="the best on the way; their lake does not slip; the text has 0.679 for GRPO with the filter",
    ),
    Comparison(
        "step_credit",
        "GiGPO, 1.5 B",
        "",
        ("PPO", "GRPO", "GiGPO"),
        {"WebShop": (0.515, 0.568, 0.674), "ALFWorld": (0.544, 0.728, 0.861)},
        {"{}": _each(["starpo_gae", "starpo", "gigpo"])},
        games=("sokoban, 10 turns", "sokoban, 20 turns", "toyshop"),
    ),
)
BY_QUESTION: Mapping[str, Comparison] = {each.question: each for each in COMPARISONS if not each.name}

ROLLOUTS = 200  # of RAGEN's curves, and of the runs here that are named so
SUCCESS_DROPS = "success drops"
# RAGEN's Figure 6: the rollout at which a sign turns (the gradient norm: has its first spike) and success drops, of
# the PPO form. For Sokoban's success no rollout could be read off.
FIGURE_6: Mapping[str, Mapping[str, float]] = {
    "bandit": {SPREAD.says: 70, GRADIENT.says: 170, SUCCESS_DROPS: 120},
    "sokoban": {SPREAD.says: 10, GRADIENT.says: 110},
    "frozenlake_slippery": {SPREAD.says: 40, GRADIENT.says: 90, SUCCESS_DROPS: 90},
}
