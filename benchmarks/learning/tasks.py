"""The tasks and variants that several questions share, as data; see ``spec.py`` for what the words mean.

Left out: variants that differ in one number only; they are in the scripts that ask about that number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from learning.spec import Evaluation, Task, Variant, WarmStart
from ragen_envs import consistency
from ragen_envs.bandit import DEFAULT_NAMES, TEST_PAIRS, TRAIN_PAIRS
from ragen_trl.config.recipes import ENVIRONMENTS, warm_start_defaults
from ragen_trl.trajectory import Trajectory


def words_of_the_page(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """Stands in for a reward of the reasoning where a model writes none: how well actions follow from the page."""
    turns = [[(turn.state, turn.info["actions"] or [""]) for turn in episode.turns] for episode in trajectory]
    return [fmean(fmean(consistency(page, action) for action in done) for page, done in episode) for episode in turns]


STARPO_S = "ragen_trl:StarPOSConfig"
CRITIC = {"critic_learning_rate": 1e-3}
GAE = {"advantage": "gae", **CRITIC}
SYMMETRIC = {"epsilon": 0.2, "epsilon_high": 0.2}
HIGHER = {"epsilon": 0.2, "epsilon_high": 0.28}
# Four passes over a rollout in four mini-batches each: what PPO codes do by default, under the symmetric clip of 0.2.
_VANILLA = {"per_device_train_batch_size": 32, "steps_per_generation": 4, "num_iterations": 4, "delta": None}
_REPORTS = "learning.student_reports"

VARIANTS: dict[str, Variant] = {
    "vanilla": Variant(
        "vanilla, 4 epochs",
        options=_VANILLA,
        smoke={"per_device_train_batch_size": 4},
        paper={"gradient_accumulation_steps": 4, "steps_per_generation": 16, "num_iterations": 4, "delta": None},
    ),
    "starpo": Variant("StarPO, group"),
    "starpo_std": Variant("StarPO, group / std", options={"scale_rewards": "group"}),
    "starpo_gae": Variant("StarPO, GAE", options=GAE),
    "starpo_s": Variant("StarPO-S, group", STARPO_S),
    "starpo_s_gae": Variant("StarPO-S, GAE", STARPO_S, options=GAE),
    "bi_level": Variant("bi-level GAE", options={"advantage": "bi_level_gae", **CRITIC}),
    "gigpo": Variant("GiGPO", options={"advantage": "gigpo"}),
    "astar_po": Variant(
        "A*-PO",
        "ragen_trl:AStarPOConfig",
        "ragen_trl:AStarPOTrainer",
        {
            "num_generations": 1,
            "num_train_seeds": 128,
            "reference_samples": 4,
            "max_reference_samples": 8,
            "beta2": 1e-2,
        },
        smoke={"num_train_seeds": 16, "max_reference_samples": 4, "num_generations": 1},
    ),
    # As reported, except the learning rate, which was that of a model 9000 times as large: one trajectory an update and
    # 100 updates (the 80 episodes for its V* are not counted); two groups of four and 300 updates.
    "first_report": Variant(
        "first report",
        f"{_REPORTS}:FirstReportConfig",
        f"{_REPORTS}:FirstReportTrainer",
        {"per_device_train_batch_size": 1, "num_generations": 1},
        trajectories=100,
        smoke={"per_device_train_batch_size": 1, "num_generations": 1},
        paper={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, "num_generations": 1},
    ),
    "second_report": Variant(
        "second report",
        f"{_REPORTS}:SecondReportConfig",
        f"{_REPORTS}:SecondReportTrainer",
        {"per_device_train_batch_size": 8, "num_generations": 4},
        trajectories=2400,
        reward_funcs=("learning.tasks:words_of_the_page",),
        smoke={"per_device_train_batch_size": 8},
        paper={"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 4},
    ),
}

_GROUPS = ("starpo", "starpo_s", "gigpo")
_ALL = ("starpo", "starpo_gae", "starpo_s", "starpo_s_gae", "bi_level", "gigpo", "astar_po", "vanilla")
LAKE = {"is_slippery": False, "frozen_prob": 0.9}
# In rooms of 6 by 6 the small model imitated 12,000 episodes and was at the level of random play (0.11 and 0.13).
ROOM = {"dim_room": [5, 5]}
_EVERY_PAIR = [list(pair) for pair in (*TRAIN_PAIRS, *TEST_PAIRS, DEFAULT_NAMES)]

TASKS: dict[str, Task] = {
    "bandit": Task(
        paper=ENVIRONMENTS["ragen/Bandit-v0"],
        env="ragen/Bandit-v0",
        env_kwargs={},
        evaluations={
            "trained pair": Evaluation("ragen/Bandit-v0"),
            "other pairs": Evaluation("ragen/Bandit-v0", {"names": "ragen2-test"}),
            "BanditRev": Evaluation("ragen/BanditRev-v0"),
        },
        # Noise 1: both arms equally often, of all pairs, so that only the form of an answer is learnt.
        warm_start=WarmStart(
            {"demonstrations": 4000, "noise": 1.0, "demo_epochs": 2.0},
            {"names": _EVERY_PAIR},
            {"hidden_size": 64, "num_layers": 2},
        ),
        trajectories=32 * 200,
        level=0.95,
        variants=_ALL,
        # Divided by the std of a group, the expected step is away from the better arm (docs/decisions.md).
        options={"per_device_train_batch_size": 32},
        changes={
            "vanilla": {"per_device_train_batch_size": 8},
            # What an arm pays is random: a V* near the mean is the better baseline (large β₁).
            "astar_po": {"beta1": 5.0},
            **dict.fromkeys(_GROUPS, {"scale_rewards": "none"}),
        },
    ),
    "frozenlake": Task(
        env="ragen/FrozenLake-v0",
        env_kwargs=LAKE,
        evaluations={"held out": Evaluation("ragen/FrozenLake-v0", LAKE)},
        warm_start=WarmStart(
            {"demonstrations": 12_000, "noise": 0.5}, LAKE, {"hidden_size": 64, "num_layers": 3}
        ),
        trajectories=128 * 44,
        level=0.5,
        variants=_ALL,
        smoke_demonstrations=256,
    ),
    # RAGEN's lake: a third of the moves go where they should, and the oracle reaches the goal in half of the episodes.
    "frozenlake_slippery": Task(
        env="ragen/FrozenLake-v0",
        env_kwargs={},
        evaluations={"held out": Evaluation("ragen/FrozenLake-v0")},
        warm_start=WarmStart({"demonstrations": 8_000, "noise": 0.5}, {}, {"hidden_size": 64, "num_layers": 3}),
        trajectories=128 * 20,
        level=0.3,
        variants=_ALL,
        smoke_demonstrations=256,
        options={"max_turns": 5, "max_actions_per_turn": 2, "max_actions": 10},
    ),
    "sokoban": Task(
        env="ragen/Sokoban-v0",
        env_kwargs=ROOM,
        evaluations={"held out": Evaluation("ragen/Sokoban-v0", ROOM)},
        warm_start=WarmStart({"demonstrations": 10_000, "noise": 0.3}, ROOM, {"hidden_size": 64, "num_layers": 3}),
        trajectories=128 * 32,
        level=0.45,
        variants=(*_ALL, "starpo_std"),
        smoke_demonstrations=256,
        options={"max_turns": 5, "max_actions_per_turn": 2, "max_actions": 10, "learning_rate": 4e-4},
        changes={
            # Where all of a group fail, returns differ by how far each one walked. Divided by their std, that teaches
            # to stand still (docs/decisions.md). StarPO-S keeps the std, as its filter leaves such groups out.
            **dict.fromkeys(("starpo", "gigpo"), {"scale_rewards": "none"}),
            # With the default most trajectories are below V*, and most sampled replies become less likely.
            "astar_po": {"beta1": 5.0},
        },
    ),
    "toyshop": Task(
        paper=ENVIRONMENTS["ragen/ToyShop-v0"],
        paper_env_kwargs={"split": "train"},
        env="ragen/ToyShop-v0",
        env_kwargs={"split": "train"},
        evaluations={"256 prompts": Evaluation("ragen/ToyShop-v0", {"split": "eval"}, by_number=True)},
        warm_start=WarmStart(
            warm_start_defaults("ragen/ToyShop-v0", None), {"split": "train"}, {"hidden_size": 96, "num_layers": 2}
        ),
        trajectories=128 * 36,
        level=0.8,
        variants=("starpo", "starpo_s", "astar_po", "first_report", "second_report"),
        seeds=(42, 43, 44),
    ),
}

_PER_ROLLOUT = 32
IN_FOUR_UPDATES = {"per_device_train_batch_size": _PER_ROLLOUT // 4, "steps_per_generation": 4}
"""Options for four updates on a rollout of `to_the_end`."""


def in_four_updates(label: str, **options: Any) -> Variant:
    """A form in four updates a rollout; a task says how large they are."""
    paper = {**options, "gradient_accumulation_steps": 4, "steps_per_generation": 16}
    paper.pop("critic_learning_rate", None)  # that of the tiny model
    smoke = {"per_device_train_batch_size": 4}
    return Variant(label, options={**options, "steps_per_generation": 4}, smoke=smoke, paper=paper)


PPO_IN_FOUR = in_four_updates("vanilla, PPO form, 4 updates", **GAE, **SYMMETRIC)


def game_of(settings: Mapping[str, Any]) -> str:
    """The game that a task trains in, under the name that most questions give it.

    Args:
        settings: Of the task, as results have them: ``env`` and ``evaluations``, of which the first is of that game.
    """
    trained = next(iter(settings["evaluations"].values()))
    if "FrozenLake" in settings["env"] and trained["env_kwargs"].get("is_slippery", True):
        return "frozenlake_slippery"
    return str(settings["env"]).removeprefix("ragen/").partition("-")[0].lower()


def to_the_end(
    name: str, variants: Sequence[str], changes: Mapping[str, Mapping[str, Any]], group_size: int = 4
) -> Task:
    """A game to the end of RAGEN's curves: 200 rollouts, here of 32 trajectories.

    Args:
        name: Of the game.
        variants: Of the question.
        changes: Options by variant, such as `IN_FOUR_UPDATES`; without them a rollout has one update.
        group_size: Trajectories a start state.
    """
    task = TASKS[name]
    return replace(
        task,
        variants=tuple(variants),
        trajectories=200 * _PER_ROLLOUT,
        evaluations_per_run=20,
        episodes=128,
        options={**task.options, "per_device_train_batch_size": _PER_ROLLOUT, "num_generations": group_size},
        changes=changes,
        seeds=(11, 12, 13),
    )
