"""The vocabulary of the experiments: a question, its tasks, its variants, and the options that follow from them.

A question is what one script under ``benchmarks/`` asks. A task says what is played and how long; a variant says which
algorithm plays, as differences from the recipe of the embedded model (``ragen_trl/config/recipes.py``). Every variant
of a task begins with the same warm start, plays the same start states and ends at the same number of sampled
trajectories.
At the paper's scale there is no warm start: a pretrained model is trained with RAGEN's settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium

from ragen_trl.config.recipes import ENVIRONMENTS, defaults


class PromptsByNumber(gymnasium.Wrapper):
    """Seed i plays prompt number i of the split, so that the first 256 evaluation seeds are the 256 fixed prompts."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; without a seed, the prompt is drawn."""
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
        lesson: ``module:function`` that makes tokenizer and episodes (``demonstrations.py``); unset: oracle play.
        play: Options of the demonstrations' play, where they are not the task's.
    """

    options: Mapping[str, Any]
    env_kwargs: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    lesson: str | None = None
    play: Mapping[str, Any] = field(default_factory=dict)


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
        variants: Names of the question's variants.
        options: Training options of all variants, over those of the recipe.
        changes: More options, by variant.
        episodes: Of one evaluation.
        smoke_demonstrations: Of the smoke run's warm start; few where none would make its episodes succeed.
        evaluations_per_run: Evaluations after the one before training, equally spaced in sampled trajectories.
        seeds: Of the runs, where the command line names none.
        more_seeds: Further ones of single variants, those that a headline claim depends on.
        model: Folder or hub id of a pretrained model, instead of the embedded one and its warm start.
        temperature: Of the evaluations.
        paper: Options at the paper's scale, over those of ``PAPER``.
        paper_env_kwargs: Keyword arguments of the environment there; unset: the defaults, which are RAGEN's.
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
    more_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    model: str | None = None
    temperature: float = 1.0
    paper: Mapping[str, Any] = field(default_factory=dict)
    paper_env_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def seeds_of(self, variant: str) -> tuple[int, ...]:
        """The seeds of a variant's runs."""
        return (*self.seeds, *self.more_seeds.get(variant, ()))


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
        lora: Arguments of ``LoraConfig``; without any, all weights are trained.
        smoke: Options of a smoke run, over all others.
        paper: Options at the paper's scale, instead of ``options``; unset: the same.
        signal_every: The gradient by the spread of groups is measured every so many rollouts; 0: never.
    """

    label: str
    config: str = "ragen_trl:StarPOConfig"
    trainer: str = "ragen_trl:StarPOTrainer"
    options: Mapping[str, Any] = field(default_factory=dict)
    trajectories: int | None = None
    reward_funcs: tuple[str, ...] = ()
    lora: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] | None = None
    signal_every: int = 0


@dataclass(frozen=True)
class Question:
    """What a script asks.

    Attributes:
        name: Of the script, of its results, and of its page in ``docs/experiments/``, which says what is published and
            what agrees.
        title: The question.
        tasks: By name.
        variants: By name; every task says which of them it has.
        curves: Whether a picture of the learning curves is drawn for each task, as well as that of the final success.
    """

    name: str
    title: str
    tasks: Mapping[str, Task]
    variants: Mapping[str, Variant]
    curves: bool = False

    def scaled(self, smoke: bool, model: str | None) -> "Question":
        """As the command line asks it: at the paper's scale with a pretrained model, or in a minute, or both."""
        question = self if model is None else self.at_paper_scale(model)
        return question.small() if smoke else question

    def small(self) -> "Question":
        """As a smoke run asks it."""
        changes = {name: variant.smoke for name, variant in self.variants.items()}
        return replace(self, tasks={name: small(task, changes) for name, task in self.tasks.items()})

    def at_paper_scale(self, model: str) -> "Question":
        """With a pretrained model and RAGEN's settings."""
        variants = {
            name: replace(variant, options=variant.paper or _without_tiny_rates(variant.options))
            for name, variant in self.variants.items()
        }
        tasks: dict[str, Task] = {}
        for name, task in self.tasks.items():
            scaled = at_paper_scale(task, model)
            if not any(_covers(other, scaled) for other in tasks.values()):  # some differ only in their warm start
                tasks[name] = scaled
        return replace(self, tasks=tasks, variants=variants)


# RAGEN's settings: 8 groups of 16, 200 rollouts of up to 5 turns, reasoning of up to 400 tokens a turn.
PAPER: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 16,
    "num_generations": 16,
    "learning_rate": 1e-6,
    "max_turns": 5,
    "max_actions_per_turn": 5,
    "max_actions": 10,
    "max_reply_length": 400,
    "max_completion_length": 4096,
    "logging_steps": 1,
    "report_to": "none",
    "gradient_checkpointing": True,
    "critic_learning_rate": 1e-5,
}


def training_options(task: Task, variant_name: str, variant: Variant) -> dict[str, Any]:
    """All training options of a run except seed and folder; the number of steps follows from that of trajectories."""
    options = {
        **play_options(task),
        **variant.options,
        **task.changes.get(variant_name, {}),
        "env_kwargs": dict(task.env_kwargs),
        "save_strategy": "no",
    }
    accumulation = options["gradient_accumulation_steps"]
    micro_batches = options.get("steps_per_generation") or accumulation
    rollouts = -(-run_trajectories(task, variant) // (options["per_device_train_batch_size"] * micro_batches))
    options["max_steps"] = max(1, rollouts * micro_batches * options.get("num_iterations", 1) // accumulation)
    return options


def play_options(task: Task) -> dict[str, Any]:
    """What all variants of a task share: the recipe of the model, and the task's own options over it."""
    return {**(PAPER if task.model else defaults(task.env, None)), **task.options}


def run_trajectories(task: Task, variant: Variant) -> int:
    """How many trajectories a run samples, rounded up to whole rollouts."""
    return min(task.trajectories, variant.trajectories or task.trajectories)


def _covers(task: Task, other: Task) -> bool:
    """Whether a task is played as another one is, with all its variants and perhaps more."""
    names = {name: getattr(task, name) for name in ("variants", "level", "smoke_demonstrations")}
    return set(other.variants) <= set(task.variants) and replace(other, **names) == task


def _without_tiny_rates(options: Mapping[str, Any]) -> dict[str, Any]:
    """A variant's options without the learning rates of a model 1000 times as small."""
    return {name: value for name, value in options.items() if name not in ("learning_rate", "critic_learning_rate")}


def at_paper_scale(task: Task, model: str) -> Task:
    """The task for a pretrained model: 200 rollouts of 128, evaluated as the paper does, at temperature 0.5."""
    evaluations = {name: _evaluation_at_paper_scale(task, each) for name, each in task.evaluations.items()}
    return replace(
        task,
        model=model,
        warm_start=WarmStart({}, {}),
        env_kwargs=task.paper_env_kwargs,
        evaluations=evaluations,
        options=task.paper,
        changes={},
        trajectories=128 * 200,
        evaluations_per_run=20,
        temperature=0.5,
    )


def _evaluation_at_paper_scale(task: Task, evaluation: Evaluation) -> Evaluation:
    """What is trained on is evaluated as it is trained on; other environments in RAGEN's form, not the small one."""
    trained_on = evaluation.env == task.env
    small = task.env_kwargs if trained_on else ENVIRONMENTS.get(evaluation.env, {}).get("env_kwargs", {})
    own = {name: value for name, value in evaluation.env_kwargs.items() if small.get(name) != value}
    return replace(evaluation, env_kwargs={**(task.paper_env_kwargs if trained_on else {}), **own})


_SMOKE_TURNS = 5


def small(task: Task, changes: Mapping[str, Mapping[str, Any]]) -> Task:
    """The task for a smoke run: two rollouts of 16 trajectories, after a warm start in which a few episodes succeed.

    Longer episodes than five turns would take most of the time and show nothing more.
    """
    turns = play_options(task).get("max_turns", _SMOKE_TURNS)
    return replace(
        task,
        warm_start=replace(
            task.warm_start,
            options={**task.warm_start.options, "demonstrations": task.smoke_demonstrations, "demo_epochs": 3.0},
            model={"hidden_size": 64, "num_layers": 2},
        ),
        trajectories=32,
        options={
            **task.options,
            "per_device_train_batch_size": 16,
            "gradient_accumulation_steps": 1,
            "num_generations": 4,
            **({"max_turns": _SMOKE_TURNS} if turns > _SMOKE_TURNS else {}),
        },
        changes=changes,
        episodes=16,
        evaluations_per_run=2,
    )


# CPU seconds of the embedded model for 128 trajectories on one thread: to play, to learn from all of them once, and for
# a critic to do so; and for 1000 demonstrations of the warm start. Each at the given number of turns. Between what the
# first and the latest committed runs took.
_SECONDS: Mapping[str, tuple[float, float, float, float, int]] = {
    "ragen/Bandit-v0": (0.1, 0.16, 0.1, 8.0, 1),
    "ragen/FrozenLake-v0": (0.2, 0.65, 0.5, 6.6, 3),
    "ragen/Sokoban-v0": (0.5, 1.8, 1.3, 14.0, 5),
    "ragen/ToyShop-v0": (0.4, 3.2, 2.2, 42.0, 5),
}
_START = 9.0  # of a process
_THOUGHTS = 1.4  # times as long with thoughts


def expected_minutes(task: Task, variant_name: str, variant: Variant) -> float:
    """CPU minutes that a run will take, evaluations included: a rough estimate; other games count as Sokoban."""
    options = training_options(task, variant_name, variant)
    play, learn, critic, _, turns = _SECONDS.get(task.env, _SECONDS["ragen/Sokoban-v0"])
    length = options.get("max_turns", turns) / turns * (_THOUGHTS if options.get("think") else 1.0)
    passes = options.get("num_iterations", 1) * (1 + critic / learn * ("gae" in options.get("advantage", "")))
    kept = options.get("filter_ratio", 0.25 if variant.config.endswith(":StarPOSConfig") else 1.0)
    measured = 0.5 / variant.signal_every if variant.signal_every else 0.0
    training = run_trajectories(task, variant) / 128 * (play + learn * (passes * kept + measured))
    evaluations = task.evaluations_per_run + 1 + len(task.evaluations)
    return (_START + length * (training + evaluations * task.episodes / 128 * (play + learn / 3))) / 60


def lesson_minutes(task: Task) -> float:
    """CPU minutes of the task's warm start and baselines, as roughly."""
    play, _, _, thousand, turns = _SECONDS.get(task.env, _SECONDS["ragen/Sokoban-v0"])
    options = play_options(task)
    length = options.get("max_turns", turns) / turns * (_THOUGHTS if options.get("think") else 1.0)
    episodes = 2 * len(task.evaluations) * task.episodes / 128
    teaching = thousand * task.warm_start.options.get("demonstrations", 0) / 1000
    return (_START + length * (teaching + play * episodes)) / 60
