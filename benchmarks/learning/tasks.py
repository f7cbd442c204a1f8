"""What ``learning_curves.py`` trains: environments, warm starts and variants, as data.

A task says what is played and how long; a variant says which algorithm plays, as differences from the recipe of the
embedded model (``ragen_trl/recipes.py``). Every variant of a task begins with the same warm start, plays the same start
states and ends at the same number of sampled trajectories. Left out: variants that differ in one number only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import gymnasium

from ragen_envs import consistency
from ragen_envs.bandit import DEFAULT_NAMES, TEST_PAIRS, TRAIN_PAIRS
from ragen_trl.recipes import defaults, warm_start_defaults
from ragen_trl.trajectory import Trajectory


class PromptsByNumber(gymnasium.Wrapper):
    """Seed i plays prompt number i of the split, so that the first 256 evaluation seeds are the 256 fixed prompts."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; without a seed, of a prompt that is drawn."""
        number = {} if seed is None else {"index": seed}
        return self.env.reset(seed=seed, options={**(options or {}), **number})


@dataclass(frozen=True)
class Evaluation:
    """What is played held out: 256 episodes, sampled at temperature 1.

    Attributes:
        env: Gymnasium id.
        env_kwargs: Its keyword arguments.
        by_number: Seed i is prompt number i, for environments with a fixed list of prompts.
    """

    env: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    by_number: bool = False

    def make(self) -> gymnasium.Env[str, str]:
        """A new environment."""
        made = gymnasium.make(self.env, disable_env_checker=True, **self.env_kwargs)
        return PromptsByNumber(made) if self.by_number else made


@dataclass(frozen=True)
class WarmStart:
    """The supervised stage, once a task.

    Attributes:
        options: Fields of ``WarmStartConfig``.
        env_kwargs: Keyword arguments of the demonstrations' environment.
        model: Arguments of ``build_tiny_model``.
    """

    options: Mapping[str, Any]
    env_kwargs: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What is learnt.

    Attributes:
        env: Gymnasium id that is trained on.
        env_kwargs: Its keyword arguments.
        evaluations: By name; the first one is that of the curve, the others are played before and after training.
        warm_start: Where every variant begins.
        trajectories: How many a run samples, those of a reference and of refills included.
        level: Success that a variant is timed to.
        variants: Names of ``VARIANTS``.
        options: Training options of all variants, over those of the recipe.
        changes: More options, by variant.
        episodes: Of one evaluation.
        smoke_demonstrations: Of the smoke run's warm start; few where none would make its episodes succeed.
        evaluations_per_run: Evaluations after the one before training, equally spaced in sampled trajectories.
        seeds: Of the runs, where the command line names none.
    """

    env: str
    env_kwargs: Mapping[str, Any]
    evaluations: Mapping[str, Evaluation]
    warm_start: WarmStart
    trajectories: int
    level: float
    variants: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    episodes: int = 256
    smoke_demonstrations: int = 64
    evaluations_per_run: int = 8
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Variant:
    """How it is learnt.

    Attributes:
        label: In tables and pictures.
        config: ``module:class`` of the configuration.
        trainer: ``module:class`` of the trainer.
        options: Training options, over those of the recipe and of the task.
        trajectories: Ends there if that is sooner than the task does.
        reward_funcs: ``module:function`` of further reward functions.
    """

    label: str
    config: str = "ragen_trl.config:StarPOConfig"
    trainer: str = "ragen_trl.starpo_trainer:StarPOTrainer"
    options: Mapping[str, Any] = field(default_factory=dict)
    trajectories: int | None = None
    reward_funcs: tuple[str, ...] = ()


def words_of_the_page(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """Stands in for a reward of the reasoning where a model writes none: how well actions follow from the page."""
    turns = [[(turn.state, turn.info["actions"] or [""]) for turn in episode.turns] for episode in trajectory]
    return [fmean(fmean(consistency(page, action) for action in done) for page, done in episode) for episode in turns]


_STARPO_S = "ragen_trl.config:StarPOSConfig"
_CRITIC = {"critic_learning_rate": 1e-3}
# Four passes over a rollout in four mini-batches each: what PPO codes do by default, under the symmetric clip of 0.2.
_VANILLA = {"per_device_train_batch_size": 32, "steps_per_generation": 4, "num_iterations": 4, "delta": None}
_REPORTS = "ragen_trl.student_reports"

VARIANTS: dict[str, Variant] = {
    "vanilla": Variant("vanilla, 4 epochs", options=_VANILLA),
    "starpo": Variant("StarPO, group"),
    "starpo_std": Variant("StarPO, group / std", options={"scale_rewards": "group"}),
    "starpo_gae": Variant("StarPO, GAE", options={"advantage": "gae", **_CRITIC}),
    "starpo_s": Variant("StarPO-S, group", _STARPO_S),
    "starpo_s_gae": Variant("StarPO-S, GAE", _STARPO_S, options={"advantage": "gae", **_CRITIC}),
    "bi_level": Variant("bi-level GAE", options={"advantage": "bi_level_gae", **_CRITIC}),
    "gigpo": Variant("GiGPO", options={"advantage": "gigpo"}),
    "astar_po": Variant(
        "A*-PO",
        "ragen_trl.astar_po_config:AStarPOConfig",
        "ragen_trl.astar_po_trainer:AStarPOTrainer",
        {
            "num_generations": 1,
            "num_train_seeds": 128,
            "reference_samples": 4,
            "max_reference_samples": 8,
            "beta2": 1e-2,
        },
    ),
    # As reported but for the learning rate, which was that of a model 5000 times as large: one trajectory an update and
    # 100 updates (the 80 episodes behind its V* are not counted); two groups of four and 300 updates.
    "first_report": Variant(
        "first report",
        f"{_REPORTS}:FirstReportConfig",
        f"{_REPORTS}:FirstReportTrainer",
        {"per_device_train_batch_size": 1, "num_generations": 1},
        trajectories=100,
    ),
    "second_report": Variant(
        "second report",
        f"{_REPORTS}:SecondReportConfig",
        f"{_REPORTS}:SecondReportTrainer",
        {"per_device_train_batch_size": 8, "num_generations": 4},
        trajectories=2400,
        reward_funcs=("learning.tasks:words_of_the_page",),
    ),
}

_GROUPS = ("starpo", "starpo_s", "gigpo")
_ALL = ("starpo", "starpo_gae", "starpo_s", "starpo_s_gae", "bi_level", "gigpo", "astar_po", "vanilla")
_LAKE = {"is_slippery": False, "frozen_prob": 0.9}
# In rooms of 6 by 6 the small model's imitation of 12,000 episodes was at the level of random play (0.11 and 0.13).
_ROOM = {"dim_room": [5, 5]}
_EVERY_PAIR = [list(pair) for pair in (*TRAIN_PAIRS, *TEST_PAIRS, DEFAULT_NAMES)]

TASKS: dict[str, Task] = {
    "bandit": Task(
        env="ragen/Bandit-v0",
        env_kwargs={},
        evaluations={
            "trained pair": Evaluation("ragen/Bandit-v0"),
            "other pairs": Evaluation("ragen/Bandit-v0", {"names": "ragen2-test"}),
            "BanditRev": Evaluation("ragen/BanditRev-v0"),
        },
        # Noise 1: both arms alike, of all pairs, so that nothing is known but the form of an answer.
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
            # Luck decides what an arm pays: a V* near the mean is the better baseline (large β₁).
            "astar_po": {"beta1": 5.0},
            **dict.fromkeys(_GROUPS, {"scale_rewards": "none"}),
        },
    ),
    "frozenlake": Task(
        env="ragen/FrozenLake-v0",
        env_kwargs=_LAKE,
        evaluations={"held out": Evaluation("ragen/FrozenLake-v0", _LAKE)},
        warm_start=WarmStart(
            {"demonstrations": 12_000, "noise": 0.5}, _LAKE, {"hidden_size": 64, "num_layers": 3}
        ),
        trajectories=128 * 44,
        level=0.5,
        variants=_ALL,
        smoke_demonstrations=256,
    ),
    "sokoban": Task(
        env="ragen/Sokoban-v0",
        env_kwargs=_ROOM,
        evaluations={"held out": Evaluation("ragen/Sokoban-v0", _ROOM)},
        warm_start=WarmStart({"demonstrations": 10_000, "noise": 0.3}, _ROOM, {"hidden_size": 64, "num_layers": 3}),
        trajectories=128 * 32,
        level=0.45,
        variants=(*_ALL, "starpo_std"),
        smoke_demonstrations=256,
        options={"max_turns": 5, "max_actions_per_turn": 2, "max_actions": 10, "learning_rate": 4e-4},
        changes={
            # Where all of a group fail, returns differ by how far each one walked: divided by their std, that teaches
            # to stand still (docs/decisions.md). StarPO-S keeps the std, as its filter leaves such groups out.
            **dict.fromkeys(("starpo", "gigpo"), {"scale_rewards": "none"}),
            # With the default most trajectories are below V*, and whatever was sampled becomes less likely.
            "astar_po": {"beta1": 5.0},
        },
    ),
    "toyshop": Task(
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


def training_options(task: Task, variant_name: str) -> dict[str, Any]:
    """All training options of a run but for seed and folder; the number of steps follows from that of trajectories."""
    options = {
        **defaults(task.env, None),
        **task.options,
        **VARIANTS[variant_name].options,
        **task.changes.get(variant_name, {}),
        "env_kwargs": dict(task.env_kwargs),
        "save_strategy": "no",
    }
    accumulation = options["gradient_accumulation_steps"]
    micro_batches = options.get("steps_per_generation") or accumulation
    rollouts = -(-run_trajectories(task, variant_name) // (options["per_device_train_batch_size"] * micro_batches))
    options["max_steps"] = max(1, rollouts * micro_batches * options.get("num_iterations", 1) // accumulation)
    return options


def run_trajectories(task: Task, variant_name: str) -> int:
    """How many trajectories a run samples, rounded up to whole rollouts."""
    return min(task.trajectories, VARIANTS[variant_name].trajectories or task.trajectories)


def small(task: Task) -> Task:
    """The task for a smoke run: two rollouts of 16 trajectories, after a warm start in which a few episodes succeed."""
    batch = {"per_device_train_batch_size": 16, "num_generations": 4}
    reference = {"per_device_train_batch_size": 16, "num_train_seeds": 16, "max_reference_samples": 4}
    return replace(
        task,
        warm_start=replace(
            task.warm_start,
            options={**task.warm_start.options, "demonstrations": task.smoke_demonstrations, "demo_epochs": 3.0},
            model={"hidden_size": 64, "num_layers": 2},
        ),
        trajectories=32,
        options={**task.options, **batch},
        changes={
            "vanilla": {"per_device_train_batch_size": 4},
            "astar_po": {**reference, "num_generations": 1},
            "first_report": {"per_device_train_batch_size": 1},
            "second_report": {"per_device_train_batch_size": 8},
        },
        episodes=16,
        evaluations_per_run=2,
    )
