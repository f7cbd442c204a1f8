"""Defaults of the commands, as data: the recipe of the embedded tiny model, and RAGEN's limits for every other model.

The recipe makes games easier, so a model of half a million parameters can learn them. Both only replace defaults: a
preset (``presets.py``), a YAML file and the command line win, in this order.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ragen_envs import TURN_LIMITS
from ragen_trl.config.reading import CRITIC_ADVANTAGES

# The embedded model does not need the memory savings and the small learning rates of a pretrained one.
EMBEDDED: dict[str, Any] = {
    "think": False,
    "max_reply_length": 24,
    "max_completion_length": 700,
    "per_device_train_batch_size": 128,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "learning_rate": 5e-4,
    "adam_beta2": 0.99,
    "entropy_coef": 0.0,
    "gradient_checkpointing": False,
    "bf16": False,
    "max_steps": 300,
}

# Options that differ for one algorithm.
ALGORITHMS_OF_EMBEDDED: dict[str, dict[str, Any]] = {"a-star-po": {"num_generations": 1, "beta2": 1e-2}}

# StarPO with a critic and without a filter: four updates on a rollout of as many trajectories, which is what
# `StarPOConfig` has for a larger model. So 300 rollouts are 1200 updates, and checkpoints lie between two rollouts.
FOUR_UPDATES: dict[str, Any] = {
    "per_device_train_batch_size": 32,
    "steps_per_generation": 4,
    "gradient_accumulation_steps": 1,
    "max_steps": 1200,
    "save_steps": 200,
}
# Who gives one of these has said how a rollout is divided.
DIVISIONS = (
    "per_device_train_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "generation_batch_size",
)

EVERY_RUN: dict[str, Any] = {
    "logging_steps": 1,
    "save_steps": 50,
    "save_total_limit": 2,
    "report_to": "none",
    "disable_tqdm": True,
}

# What the embedded model plays.
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    **TURN_LIMITS,
    # A purchase that scores is rare at first, so training needs credit on the way; success stays the task's own.
    "ragen/WebShop-v0": {
        "env_kwargs": {"reward": "tiered"},
        "max_turns": 15,
        "max_actions_per_turn": 1,
        "max_actions": 15,
    },
    # The easiest tasks, and room for one mistake.
    "ragen/Tools-v0": {
        "env_kwargs": {"calls": 2},
        "max_turns": 4,
        "max_actions_per_turn": 1,
        "max_actions": 4,
    },
    # Without slipping and with fewer holes (RAGEN-2's setting): what a model of half a million parameters can learn.
    # Six moves reach every goal but leave little room for detours, so a noisy walker often fails.
    "ragen/FrozenLake-v0": {
        "env_kwargs": {"is_slippery": False, "frozen_prob": 0.9},
        "max_turns": 3,
        "max_actions_per_turn": 2,
        "max_actions": 6,
    },
    # One room, two objects, two commands. Longer games are too much to read for a model of half a million parameters.
    "ragen/TextWorld-v0": {
        "env_kwargs": {"size": "w1-o2-q2", "games": 32},
        "max_turns": 4,
        "max_actions_per_turn": 1,
        "max_actions": 4,
    },
}

# What training is evaluated on, where that is always another split: ToyShop's list of 256 prompts, each once, and games
# of TextWorld's that were not trained on. WebShop's depends on the split of training: `held_out_kwargs`.
EVALUATIONS: dict[str, dict[str, Any]] = {
    "ragen/ToyShop-v0": {"eval_env_kwargs": {"split": "eval"}, "eval_episodes": 256},
    "ragen/TextWorld-v0": {"eval_env_kwargs": {"split": "eval"}},
}


def evaluation_kwargs(env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments by which an environment with arguments ``kwargs`` plays what it is evaluated on."""
    fixed = {} if "folder" in kwargs else dict(EVALUATIONS.get(env, {}).get("eval_env_kwargs", {}))
    return fixed | held_out_kwargs(env, kwargs)


def held_out_kwargs(env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """How WebShop plays the products of no training: the test split that belongs to a training split.

    Success and score are the task's own under every reward; the return is, too, with ``"fixed"``.

    Example:
        >>> held_out_kwargs("ragen/WebShop-v0", {"split": "train_by_product", "reward": "tiered"})
        {'split': 'test_by_product', 'reward': 'fixed'}
        >>> held_out_kwargs("ragen/WebShop-v0", {"split": "all"})
        {}
    """
    split = kwargs.get("split")
    if env != "ragen/WebShop-v0" or not isinstance(split, str) or not split.startswith("train"):
        return {}
    return {"split": "test" + split.removeprefix("train"), "reward": "fixed"}


def selection_kwargs(env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """How an environment plays evaluations during training, by which a checkpoint may be chosen.

    In WebShop's held-out splits a seed is the number of a goal, modulo their number, so the seeds kept for this would
    be goals that are reported: they play the other held-out split. ``kwargs`` belong to the reported evaluations.

    Example:
        >>> selection_kwargs("ragen/WebShop-v0", {"split": "test_by_product", "reward": "fixed"})
        {'split': 'eval_by_product', 'reward': 'fixed'}
    """
    split = kwargs.get("split")
    if env != "ragen/WebShop-v0" or split not in ("test", "test_by_product"):
        return dict(kwargs)
    return {**kwargs, "split": "eval" + split.removeprefix("test")}


# Warm starts of the embedded model, where they differ from the defaults of ``WarmStartConfig``.
_NAMES = {"demonstrations": 4000, "demo_actions_per_turn": 1}  # one turn of one word
WARM_STARTS: dict[str, dict[str, Any]] = {
    "ragen/Bandit-v0": _NAMES,
    "ragen/BanditRev-v0": _NAMES,
    "ragen/TextWorld-v0": {"demonstrations": 2000, "noise": 0.5, "demo_actions_per_turn": 1, "demo_epochs": 4.0},
    # What a call needs is in the result of the one before, so a reply has one call.
    "ragen/Tools-v0": {"demonstrations": 18_000, "noise": 0.3, "demo_actions_per_turn": 1},
    "ragen/ToyShop-v0": {"demonstrations": 2000, "noise": 0.4, "demo_actions_per_turn": 1, "demo_epochs": 4.0},
}


# The warm start of a pretrained model on any game: it knows the language, and learns the form of a reply and a part of
# the game from a few hundred episodes. The rate suits half a billion parameters; a smaller model takes a larger one.
PRETRAINED_WARM_START: dict[str, Any] = {
    "demonstrations": 768,
    "noise": 0.1,
    "demo_learning_rate": 1e-4,
    "demo_batch_size": 4,
    "demo_epochs": 1.0,
    "demo_held_out": 0.05,
}


def is_embedded(model: str | None) -> bool:
    """Whether this is the embedded model: no model is named, or the folder has one trained from it, or its adapter."""
    if model is None:
        return True
    base = base_model(model)
    return is_embedded(base) if base else bool(_read(Path(model).expanduser() / "config.json").get("ragen_embedded"))


def base_model(name: str) -> str | None:
    """The model that an adapter in the folder ``name`` was trained on; ``None`` if there is none or it names none."""
    base = _read(Path(name).expanduser() / "adapter_config.json").get("base_model_name_or_path")
    return None if base is None else str(base)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def played(env: str, embedded: bool) -> dict[str, Any]:
    """Defaults of what is played: the environment's arguments, and limits; easier games for the embedded model."""
    return (ENVIRONMENTS if embedded else TURN_LIMITS).get(env, {})


def warm_start_defaults(env: str, model: str | None) -> dict[str, Any]:
    """Defaults of the warm start; a pretrained model needs fewer demonstrations than the embedded one (``None``)."""
    return WARM_STARTS.get(env, {}) if is_embedded(model) else PRETRAINED_WARM_START


def defaults(
    env: str,
    model: str | None,
    algo: str = "starpo-s",
    advantage: str = "group",
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Defaults of training options for ``model`` (``None``: the embedded one, as is a folder with one trained from it).

    ``given`` is what the user and a preset give, as far as it decides defaults: ``DIVISIONS`` and ``filter_ratio``.
    """
    known, critic = is_embedded(model), advantage in CRITIC_ADVANTAGES
    embedded = {**EMBEDDED, **ALGORITHMS_OF_EMBEDDED.get(algo, {})} if known else {}
    if known and critic:
        embedded["critic_learning_rate"] = 1e-3
    divided = any(name in given for name in DIVISIONS)
    if known and critic and algo == "starpo" and given.get("filter_ratio", 1.0) == 1 and not divided:
        embedded |= FOUR_UPDATES
    elif critic and (not known or divided):
        embedded["save_steps"] = 200  # every 50 rollouts of four updates: between two of them no run can be resumed
    return {**EVERY_RUN, **embedded, **played(env, known)}
