"""Files of options: the presets and the embedded model's settings in ``ragen_trl/recipes/``, and a user's own.

A file has lines ``option: value``; under ``algorithms`` and ``environments`` are options for one of these alone. Each
only replaces defaults: a preset replaces the recipe, a ``--config`` file the preset, the command line all of them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from ragen_envs import TURN_LIMITS
from ragen_trl.config.options import CRITIC_ADVANTAGES, TaskOptions, option_names
from ragen_trl.errors import OptionError

_FOLDER = Path(__file__).parents[1] / "recipes"
_OF_OUR_OWN = ("defaults", "embedded", "embedded-ppo", "pretrained")
PRESETS = tuple(sorted({path.stem for path in _FOLDER.glob("*.yaml")} - set(_OF_OUR_OWN)))
# Who gives one of these has said how a rollout is divided.
DIVISIONS = (
    "per_device_train_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "generation_batch_size",
)


def read_options(path: Path) -> dict[str, Any]:
    """The content of a file of options; `OptionError` if it is none."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise OptionError(f"{path} holds a {type(given).__name__}; it needs lines 'option: value'")
    return {str(name).replace("-", "_"): value for name, value in given.items()}


def options_for(given: Mapping[str, Any], env: str | None, algo: str | None) -> dict[str, Any]:
    """What a file of options says for an algorithm in an environment.

    Example:
        >>> given = {"max_turns": 5, "environments": {"ragen/Bandit-v0": {"max_turns": 1}}}
        >>> options_for(given, "ragen/Bandit-v0", "starpo"), options_for(given, None, None)
        ({'max_turns': 1}, {'max_turns': 5})
    """
    everywhere = {name: value for name, value in given.items() if name not in ("algorithms", "environments")}
    here = (given.get("algorithms") or {}).get(algo), (given.get("environments") or {}).get(env)
    return everywhere | (here[0] or {}) | (here[1] or {})


def preset_options(name: str, env: str | None = None) -> dict[str, Any]:
    """The options of the preset ``name`` in ``env``; without ``env``, those that hold in all environments.

    Example:
        >>> preset_options("starpo-s", "ragen/Bandit-v0")["max_actions"], preset_options("starpo-s")["max_actions"]
        (1, 10)
    """
    if name not in PRESETS:
        raise OptionError(f"preset is {name!r}; choose one of {', '.join(PRESETS)}, or give a file by --config")
    return options_for(_read(name), env, None)


@cache
def _read(name: str) -> Mapping[str, Any]:
    return MappingProxyType(read_options(_FOLDER / f"{name}.yaml"))


def played(env: str, embedded: bool) -> dict[str, Any]:
    """Defaults of what is played: the environment's arguments, and limits; easier games for the embedded model."""
    easier = _read("embedded")["environments"].get(env, {}) if embedded else {}
    names = option_names(TaskOptions)
    return {**TURN_LIMITS.get(env, {}), **{name: value for name, value in easier.items() if name in names}}


def defaults(
    env: str,
    model: str | None,
    algo: str = "starpo-s",
    advantage: str = "group",
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Defaults of all options for ``model`` (``None``: the embedded one, as is a folder with one trained from it).

    ``given`` is what the user and a preset give, as far as it decides defaults: ``DIVISIONS`` and ``filter_ratio``.
    """
    known, critic = is_embedded(model), advantage in CRITIC_ADVANTAGES
    divided = any(name in given for name in DIVISIONS)
    found = options_for(_read("defaults"), env, algo) | TURN_LIMITS.get(env, {})
    found |= options_for(_read("embedded" if known else "pretrained"), env, algo)
    if known and critic and algo == "starpo" and given.get("filter_ratio", 1.0) == 1 and not divided:
        found |= _read("embedded-ppo")
    elif critic and (not known or divided):
        found["save_steps"] = 200  # every 50 rollouts of four updates: between two of them no run can be resumed
    return found


def evaluation_defaults(env: str) -> dict[str, Any]:
    """Defaults of the evaluations of an environment that is always evaluated on another split."""
    return dict(_read("defaults")["environments"].get(env, {}))


def evaluation_kwargs(env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments by which an environment with arguments ``kwargs`` plays what it is evaluated on."""
    fixed = {} if "folder" in kwargs else evaluation_defaults(env).get("eval_env_kwargs", {})
    return {**fixed, **held_out_kwargs(env, kwargs)}


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


def is_embedded(model: str | None) -> bool:
    """Whether this is the embedded model: no model is named, or the folder has one trained from it, or its adapter."""
    if model is None:
        return True
    base = base_model(model)
    return is_embedded(base) if base else bool(_json(Path(model).expanduser() / "config.json").get("ragen_embedded"))


def base_model(name: str) -> str | None:
    """The model that an adapter in the folder ``name`` was trained on; ``None`` if there is none or it names none."""
    base = _json(Path(name).expanduser() / "adapter_config.json").get("base_model_name_or_path")
    return None if base is None else str(base)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
