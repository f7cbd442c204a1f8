"""Files of options: the presets and the embedded model's settings in ``ragen_trl/recipes/``, and a user's own.

A file has lines ``option: value``; under ``algorithms`` and ``environments`` are options for one of these alone. Each
only replaces defaults: a ``--config`` file, or a preset that it names, replaces the recipe, the command line all.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from ragen_envs import turn_limits
from ragen_trl.config.options import CRITIC_ADVANTAGES, TaskOptions, option_names
from ragen_trl.errors import OptionError
from ragen_trl.system.atomic import read_json

_FOLDER = Path(__file__).parents[1] / "recipes"
SECTIONS = ("algorithms", "environments")
"""Options for one algorithm or one environment alone, by its name."""
_OF_OUR_OWN = ("defaults", "embedded", "embedded-ppo", "pretrained")
PRESETS = tuple(sorted({path.stem for path in _FOLDER.glob("*.yaml")} - set(_OF_OUR_OWN)))


def read_options(path: Path) -> dict[str, Any]:
    """The content of a file of options, or of the preset with this name; `OptionError` if it is none."""
    if str(path) in PRESETS:
        path = _FOLDER / f"{path}.yaml"
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}; the presets are {', '.join(PRESETS)}") from None
    if not isinstance(given, dict):
        raise OptionError(f"{path} holds a {type(given).__name__}; it needs lines 'option: value'")
    for name in SECTIONS:
        section = given.get(name) or {}
        if not isinstance(section, dict) or not all(isinstance(part, dict | None) for part in section.values()):
            raise OptionError(f"{path}: {name} is {section!r}; under each name it needs lines 'option: value'")
    return {str(name).replace("-", "_"): value for name, value in given.items()}


def options_for(given: Mapping[str, Any], env: str | None, algo: str | None) -> dict[str, Any]:
    """What a file of options says for an algorithm in an environment.

    Example:
        >>> given = {"max_turns": 5, "environments": {"ragen/Bandit-v0": {"max_turns": 1}}}
        >>> options_for(given, "ragen/Bandit-v0", "starpo"), options_for(given, None, None)
        ({'max_turns': 1}, {'max_turns': 5})
    """
    everywhere = {name: value for name, value in given.items() if name not in SECTIONS}
    here = (given.get("algorithms") or {}).get(algo), (given.get("environments") or {}).get(env)
    return everywhere | (here[0] or {}) | (here[1] or {})


@cache
def _read(name: str) -> Mapping[str, Any]:
    return MappingProxyType(read_options(_FOLDER / f"{name}.yaml"))


def played(env: str, embedded: bool) -> dict[str, Any]:
    """Defaults of what is played: the environment's arguments, and limits; easier games for the embedded model."""
    easier = _read("embedded")["environments"].get(env, {}) if embedded else {}
    return turn_limits(env) | {name: easier[name] for name in option_names(TaskOptions) if name in easier}


def defaults(env: str, model: str | None, algo: str = "starpo-s", advantage: str = "group") -> dict[str, Any]:
    """Defaults of all options for ``model`` (``None``: the embedded one, as is a folder with one trained from it)."""
    known = is_embedded(model)
    found = options_for(_read("defaults"), env, algo) | turn_limits(env)
    found |= options_for(_read("embedded" if known else "pretrained"), env, algo)
    if known and algo == "starpo" and advantage in CRITIC_ADVANTAGES:
        found |= _read("embedded-ppo")
    return found


def evaluation_kwargs(env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that replace some of ``kwargs``, those of training, where a model is evaluated: a held-out split.

    WebShop plays the test split that belongs to a training split, with the task's own reward as the return.

    Example:
        >>> evaluation_kwargs("ragen/WebShop-v0", {"split": "train_by_product", "reward": "tiered"})
        {'split': 'test_by_product', 'reward': 'fixed'}
        >>> evaluation_kwargs("ragen/WebShop-v0", {"split": "all"}), evaluation_kwargs("ragen/ToyShop-v0", {})
        ({}, {'split': 'eval'})
    """
    split = kwargs.get("split")
    if env == "ragen/WebShop-v0" and isinstance(split, str) and split.startswith("train"):
        return {"split": "test" + split.removeprefix("train"), "reward": "fixed"}
    return {} if "folder" in kwargs else defaults(env, None).get("eval_env_kwargs", {})


def is_embedded(model: str | None) -> bool:
    """Whether this is the embedded model: no model is named, or the folder has one trained from it, or its adapter."""
    if model is None:
        return True
    base = base_model(model)
    return is_embedded(base) if base else bool(_json(Path(model).expanduser() / "config.json").get("ragen_embedded"))


def base_model(name: str) -> str | None:
    """The model that an adapter in the folder ``name`` was trained on; ``None`` if there is none or it names none."""
    path = Path(name).expanduser() / "adapter_config.json"
    base = _json(path).get("base_model_name_or_path")
    if base is not None and (Path(str(base)) / path.name).is_file():  # perhaps this one
        raise OptionError(f"{path} names {base!r} as its base, which is an adapter too; name a whole model there")
    return None if base is None else str(base)


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, dict, "save or copy the model again") if path.exists() else {}
