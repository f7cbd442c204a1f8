"""From a command line to configurations: recipe, a saved model's ``play.json``, preset, YAML file, options as typed.

The parser is TRL's: options are the fields of the dataclasses. The options in effect are kept, for ``config.yaml``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import torch
import yaml
from trl import GRPOConfig, TrlParser

from ragen_envs import EnvError, make_named
from ragen_trl.cli.stages import launched
from ragen_trl.config.options import ModelArguments, RunArguments, json_object
from ragen_trl.config.recipes import defaults, evaluation_kwargs, options_for, preset_options
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig, StarPOSConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.environments import check_modules, load_play_options, make_turns

ALGORITHMS: dict[str, type[StarPOConfig]] = {
    "starpo": StarPOConfig,
    "starpo-s": StarPOSConfig,
    "a-star-po": AStarPOConfig,
}
# The options that decide the defaults of all others.
_DECIDING = ("env", "algo", "advantage", "model", "context", "preset")
_NEVER_WRITTEN = ("hub_token", "overwrite", "output_dir")


class OptionParser(TrlParser):  # type: ignore[misc]
    """TRL's parser without abbreviated names, whose meaning changes with new options; it raises `OptionError`."""

    def __init__(self, classes: Sequence[Any]) -> None:
        super().__init__(classes, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing argparse's usage, which has several hundred lines."""
        raise OptionError(message)

    def take(self, given: Mapping[str, Any], source: str) -> None:
        """Take defaults from a preset or a file; `OptionError` for a name that is no option."""
        unknown = sorted(given.keys() - {action.dest for action in self._actions})
        if unknown:
            raise OptionError(f"{source} has {', '.join(unknown)}, which is no option here; --help lists ours")
        self.set_defaults_with_config(**given)

    def read(self, words: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An object of each class, and all options by name; `OptionError` for what nobody knows or can use."""
        found, unknown = self.parse_known_args(list(words))
        if unknown:
            raise OptionError(f"there is no option {unknown[0].partition('=')[0]}; --help lists ours")
        try:
            return tuple(self.parse_dict(dict(vars(found)))), vars(found)
        except (ValueError, TypeError, ImportError) as error:
            raise OptionError(str(error)) from None


def parse(given: Mapping[str, Any], words: Sequence[str], *classes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the options: command line, then YAML file (``given``), the preset, the model's play.json, and the recipe.

    Returns an object of each of ``classes`` and last the training configuration, and the options that make the same
    objects when they are given again, without those that only connect the processes of this launch. Raises
    `OptionError` or `EnvError` for what cannot be used.
    """
    first = OptionParser([])
    for name in _DECIDING:
        first.add_argument(f"--{name}", default=given.get(name))
    chosen = vars(first.parse_known_args(list(words))[0])
    recorded = load_play_options(chosen["model"])
    check_modules(chosen["model"], recorded, chosen["env"], chosen["context"])
    usual = {"env": recorded.get("env", ModelArguments.env), "algo": ModelArguments.algo, "advantage": "group"}
    usual |= preset_options(chosen["preset"])
    env, algo, advantage = (str(chosen[name] or usual[name]) for name in ("env", "algo", "advantage"))
    if algo not in ALGORITHMS:
        raise OptionError(f"algo is {algo!r}; choose one of {', '.join(ALGORITHMS)}")
    if recorded.get("env") != env:
        recorded.pop("env_kwargs", None)

    parser = OptionParser([*classes, ALGORITHMS[algo]])
    recipe = defaults(env, chosen["model"], algo, advantage)
    recipe = {name: value for name, value in recipe.items() if name in {action.dest for action in parser._actions}}
    # "" means no folder yet: with None, Transformers would use "trainer_output".
    ours = {"output_dir": "", **recipe, **recorded, **preset_options(chosen["preset"], env), "env": env, "algo": algo}
    parser.take(ours, f"preset {chosen['preset']!r}")
    parser.take(options_for(given, env, algo), "the config file")
    launch = {name: value for name, value in _of_a_launch().items() if name not in given}
    parser.set_defaults(**launch)
    plain = {option.name: option.default for kind in parser.dataclass_types for option in fields(kind)}
    plain = {name: None if default is MISSING else default for name, default in plain.items()} | launch
    parsed, options = parser.read(words)
    args = parsed[-1]
    check_single(args)
    if isinstance(parsed[0], RunArguments) and parsed[0].eval_env_kwargs is None:
        parsed[0].eval_env_kwargs = evaluation_kwargs(env, args.env_kwargs or {}) or None
    check_env(env, args)
    return parsed, {name: value for name, value in options.items() if name in ours or value != plain[name]}


def check_env(env: str, args: StarPOConfig, kwargs: Mapping[str, Any] | None = None) -> None:
    """Make an environment once, so what it lacks is said in one line before anything is played.

    Arguments are as for `make_turns`. `EnvError` says which ids or arguments there are.
    """
    try:
        make_turns(env, args, kwargs).close()
    except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
        if not isinstance(error, (UserError, EnvError)):
            make_named(env, json_object("env_kwargs", args.env_kwargs) if kwargs is None else kwargs).close()
            raise OptionError(f"env is {env!r}: {error}. ragen_envs.TextFromDiscrete makes texts of numbers") from None
        raise


def check_single(args: StarPOConfig) -> None:
    """Raise `OptionError` for options of scripts with several environments, rewards or a data set of their own."""
    usual = {"env_weights": None, "reward_weights": None, "num_train_epochs": GRPOConfig.num_train_epochs}
    for name, only in usual.items():
        if getattr(args, name) != only:
            raise OptionError(f"{name} is {getattr(args, name)}, which is for scripts of your own; leave it out here")


def _of_a_launch() -> dict[str, Any]:
    """Defaults of one of several processes: connected on a CPU, too, and patient while the main one works alone."""
    if launched() == 1:
        return {}
    on_cpu = {} if torch.cuda.is_available() else {"use_cpu": True, "ddp_backend": "gloo"}
    return {"ddp_timeout": 86_400, **on_cpu}


def options_as_yaml(options: Mapping[str, Any], folder: Path, command: str = "train") -> str:
    """The text of a ``--config`` file that repeats a run, from the options that `parse` returns."""
    head = (
        f"# python -m ragen_trl {command} --config {folder / 'config.yaml'}\n"
        "# An unfinished run goes on; to repeat a finished one, add --output_dir and another folder.\n"
    )
    kept = {name: value for name, value in options.items() if name not in _NEVER_WRITTEN}
    content = json.loads(json.dumps({**kept, "output_dir": str(folder)}, default=str))
    return head + yaml.safe_dump(content, sort_keys=True, allow_unicode=True)
