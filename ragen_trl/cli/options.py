"""From a command line to configurations: recipe, a saved model's ``play.json``, preset, YAML file, options as typed.

The parser is TRL's, so options are the fields of the dataclasses. Added here: errors name the option, the value and the
nearest name, also for a YAML file, and the options in effect are kept. Relies on TRL reading booleans by a function
called ``string_to_bool``.
"""

import difflib
import json
import math
import os
import re
from argparse import Action, ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from transformers.integrations import is_deepspeed_available
from trl import GRPOConfig, TrlParser
from trl.import_utils import is_vllm_available

from ragen_trl.cli.environments import check_env
from ragen_trl.cli.processes import launched
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.commands import ModelArguments, RunArguments
from ragen_trl.config.play import check_temperature
from ragen_trl.config.presets import PRESETS, preset_options
from ragen_trl.config.reading import READ_BY_ADVANTAGE, unread
from ragen_trl.config.recipes import EVALUATIONS, defaults, held_out_kwargs, warm_start_defaults
from ragen_trl.config.starpo import StarPOConfig, StarPOSConfig
from ragen_trl.errors import OptionError
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.rollout.environments import check_modules, load_play_options

ALGORITHMS: dict[str, type[StarPOConfig]] = {
    "starpo": StarPOConfig,
    "starpo-s": StarPOSConfig,
    "a-star-po": AStarPOConfig,
}

_TRUTH = "string_to_bool"
_COUNTS = (
    "per_device_train_batch_size gradient_accumulation_steps eval_episodes lora_alpha num_iterations "
    "steps_per_generation demonstrations demo_batch_size max_reply_length num_processes"
).split()
_RATES = (
    "learning_rate demo_learning_rate critic_learning_rate demo_epochs eval_temperature lora_r seed save_steps".split()
)
_LEAST = {**dict.fromkeys(_COUNTS, 1), **dict.fromkeys(_RATES, 0)}


@dataclass
class _Chosen:
    """The options that decide the defaults of all others."""

    env: str | None = None
    algo: str | None = None
    advantage: str | None = None
    model: str | None = None
    context: str | None = None
    num_train_epochs: float | None = None
    preset: str | None = None
    think: bool | None = None
    filter_ratio: float | None = None
    per_device_train_batch_size: int | None = None
    steps_per_generation: int | None = None
    gradient_accumulation_steps: int | None = None
    generation_batch_size: int | None = None


class OptionParser(TrlParser):  # type: ignore[misc]
    """TRL's parser without abbreviated names, whose meaning changes with new options; it raises `OptionError`."""

    def __init__(self, command: str, dataclasses: Sequence[Any]) -> None:
        super().__init__(dataclasses, prog=f"python -m ragen_trl {command}", allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing argparse's usage, which has several hundred lines."""
        raise OptionError(re.sub(r"^argument (--\w+)(/-[\w-]+)*", r"option \1", message))

    def check_names(self, rest: Sequence[str]) -> None:
        """Raise `OptionError` for the first word on the command line that belongs to no option."""
        _, unknown = self.parse_known_args(list(rest))
        for text in unknown:
            if not text.startswith("--"):
                raise OptionError(f"{text!r} belongs to no option; options are written --name value")
            name = text.partition("=")[0]
            raise OptionError(f"there is no option {name}; {self._nearest(name)}")

    def set_defaults_with_config(self, **given: Any) -> list[str]:
        """As TRL's, but an unknown name raises `OptionError`, and values get the types of their options.

        argparse converts only strings, so a number given for a boolean option would stay a number.
        """
        actions: dict[str, Action] = {}
        for action in self._actions:
            actions.setdefault(action.dest, action)  # the first one: --no_x also sets x
        for name in given:
            if name not in actions:
                hint = self._nearest(f"--{name}").replace("--", "")
                raise OptionError(f"the config file has {name!r}, which is no option; {hint}")
        typed = {name: _typed(name, value, actions[name]) for name, value in given.items()}
        remaining: list[str] = super().set_defaults_with_config(**typed)
        return remaining

    def _nearest(self, name: str) -> str:
        names = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
        typed = "--" + name.lstrip("-").replace("-", "_")
        begun = sorted((text for text in names if typed.startswith(text) and "_" in text), key=len)[-1:]
        near = begun or difflib.get_close_matches(typed, [*names, "--config", "--dry_run"])
        return f"did you mean {near[0]}?" if near else "--help lists what there is"


def parse(
    command: str, given: Mapping[str, Any], rest: Sequence[str], *dataclasses: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the options: command line, then YAML file, then the preset, the model's play.json, and the recipe.

    Args:
        command: Name of the command, for its help.
        given: Options of the YAML file.
        rest: The command line without ``--config``.
        dataclasses: The classes to make beside the training configuration, which comes last.

    Returns:
        An object of each dataclass, and the options that make the same objects when they are given again. Options that
        only connect the processes of this launch are not among these: the next launch may be on another machine.

    Raises:
        OptionError: If an option does not exist or cannot be read.
        ValueError, TypeError: If a value is out of its range.
        EnvError: If there is no such environment, or it does not take the arguments.
    """
    first = OptionParser(command, [_Chosen])
    first.set_defaults_with_config(**{name.name: given[name.name] for name in fields(_Chosen) if name.name in given})
    chosen = first.parse_args_into_dataclasses(list(rest), return_remaining_strings=True)[0]
    recorded = load_play_options(chosen.model)
    check_modules(chosen.model, recorded, chosen.env, chosen.context)
    preset = _choose(chosen, str(recorded.get("env", dataclasses[0].env)))
    if recorded.get("env") != chosen.env:
        recorded.pop("env_kwargs", None)
    parser = OptionParser(command, [*dataclasses, ALGORITHMS[chosen.algo]])
    # "" means no folder yet: with None, transformers would use "trainer_output".
    recipe = _recipe(chosen, dataclasses, preset)
    preset = _without_idle_bonus(preset, chosen.think, {**recipe, **recorded})
    others = {"output_dir": "", **recipe, **recorded, **preset, "env": chosen.env}
    if chosen.num_train_epochs is not None:  # how long to train has been said
        others.pop("max_steps", None)
    parser.set_defaults(**others)
    parser.set_defaults_with_config(**given)
    parser.check_names(rest)
    kept = vars(parser.parse_args(list(rest)))
    parser.set_defaults(**{name: value for name, value in _of_a_launch().items() if name not in given})
    options = vars(parser.parse_args(list(rest)))
    check_ranges(options)
    _check_installed(options)
    parsed = parser.parse_dict(dict(options))
    check_single(parsed[-1])
    _complete(parsed[0], parsed[-1])
    check_env(chosen.env, parsed[-1])
    plain = {option.name: option.default for kind in parser.dataclass_types for option in fields(kind)}
    kept = {name: value for name, value in kept.items() if name in others or value != _plain(plain[name])}
    return tuple(parsed), kept


def check_single(args: StarPOConfig) -> None:
    """Raise `OptionError` for options that are for several environments or rewards, which no command has."""
    for name in ("env_weights", "reward_weights"):
        if getattr(args, name) is not None:
            raise OptionError(f"{name} is {getattr(args, name)}; it is for scripts with several, leave it out")


def _complete(run: ModelArguments, args: StarPOConfig) -> None:
    """Fill in what follows from other options: the updates of a length in epochs, and on what is evaluated."""
    if args.max_steps < 0:
        args.max_steps = _steps_of_epochs(args)
    if isinstance(run, RunArguments) and run.eval_env_kwargs is None:
        kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
        run.eval_env_kwargs = held_out_kwargs(run.env, kwargs) or None


def _without_idle_bonus(preset: dict[str, Any], think: bool | None, others: Mapping[str, Any]) -> dict[str, Any]:
    """The preset without its bonus for actions that follow from thoughts, where there are none."""
    thinks = others.get("think", True) if think is None else think
    return {name: value for name, value in preset.items() if thinks or name != "consistency_weight"}


def _of_a_launch() -> dict[str, Any]:
    """Defaults of one of several processes: connected on a CPU, too, and patient while the main one works alone."""
    if launched() == 1:
        return {}
    on_cpu = {} if torch.cuda.is_available() else {"use_cpu": True, "ddp_backend": "gloo"}
    return {"ddp_timeout": 86_400, **on_cpu}


def _recipe(chosen: _Chosen, dataclasses: Sequence[Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    assert chosen.env is not None and chosen.algo is not None and chosen.advantage is not None
    given = {**preset, **{name: value for name, value in vars(chosen).items() if value is not None}}
    recipe = defaults(chosen.env, chosen.model, chosen.algo, chosen.advantage, given)
    if WarmStartConfig in dataclasses:
        recipe |= warm_start_defaults(chosen.env, chosen.model)
    known = {option.name for kind in dataclasses for option in fields(kind)}
    return recipe | {name: value for name, value in EVALUATIONS.get(chosen.env, {}).items() if name in known}


def _steps_of_epochs(args: StarPOConfig) -> int:
    """The updates of a run whose length is given in epochs: a command plays one environment, so they are known."""
    if args.num_train_seeds is None:
        raise OptionError(
            f"num_train_epochs is {args.num_train_epochs:g}, but an epoch needs start states; add --num_train_seeds, "
            "or give --max_steps instead"
        )
    rollouts = args.num_train_epochs * (args.num_train_seeds // args.groups_per_generation)
    return max(1, math.ceil(rollouts * args.steps_per_rollout))


def _choose(chosen: _Chosen, env: str) -> dict[str, Any]:
    """Fill in what the user left open of ``chosen``; returns the options of the preset that are read.

    Raises `OptionError` if there is no such preset or algorithm, or the preset is for another algorithm.
    """
    if chosen.preset is not None and chosen.preset not in PRESETS:
        raise OptionError(f"preset is {chosen.preset!r}; choose one of {', '.join(PRESETS)}")
    everywhere = {} if chosen.preset is None else preset_options(chosen.preset)
    chosen.env = chosen.env or everywhere.get("env", env)
    chosen.algo = chosen.algo or everywhere.get("algo", "starpo-s")
    chosen.advantage = chosen.advantage or everywhere.get("advantage", "group")
    if chosen.algo not in ALGORITHMS:
        estimator = f"; {chosen.algo} is an advantage, --advantage {chosen.algo}" * (chosen.algo in READ_BY_ADVANTAGE)
        raise OptionError(f"algo is {chosen.algo!r}; choose one of {', '.join(ALGORITHMS)}{estimator}")
    if chosen.preset is None:
        return {}
    if "a-star-po" in {chosen.algo, everywhere["algo"]} and chosen.algo != everywhere["algo"]:
        raise OptionError(
            f"algo is {chosen.algo!r}, and preset {chosen.preset!r} is for {everywhere['algo']!r}; leave one out"
        )
    left = unread(READ_BY_ADVANTAGE, chosen.advantage)
    return {name: value for name, value in preset_options(chosen.preset, chosen.env).items() if name not in left}


def options_as_yaml(options: Mapping[str, Any], folder: Path, command: str = "train") -> str:
    """The text of a ``--config`` file that repeats a run, from the options that `parse` returns."""
    kept = {name: value for name, value in options.items() if name not in ("overwrite", "output_dir")}
    head = (
        f"# python -m ragen_trl {command} --config {folder / 'config.yaml'}\n"
        "# An unfinished run goes on; to repeat a finished one, add --output_dir and another folder.\n"
    )
    content = json.loads(json.dumps({**kept, "output_dir": str(folder)}, default=str))
    return head + yaml.safe_dump(content, sort_keys=True, allow_unicode=True)


def holds_warm_start(folder: Path, options: Mapping[str, Any]) -> bool:
    """Whether a folder's ``config.yaml`` tells of a warm start with these options; `OptionError` if with others."""
    if not (folder / "warm_start.json").exists():
        return False
    advice = "pass --overwrite true to replace it, or choose another --output_dir"
    config = folder / "config.yaml"
    if not config.exists():
        raise OptionError(f"{folder} holds a warm start that does not tell its options; {advice}")
    was, now = read_yaml(config), yaml.safe_load(options_as_yaml(options, folder))
    differ = sorted(name for name in {*was, *now} - {"output_dir"} if was.get(name) != now.get(name))
    if differ:
        told = ([repr(each[name]) if name in each else "unset" for each in (was, now)] for name in differ)
        changed = "; ".join(f"{name} was {old}, now {new}" for name, (old, new) in zip(differ, told, strict=True))
        raise OptionError(f"{folder} holds a warm start with other options ({changed}); {advice}")
    return True


def check_ranges(options: Mapping[str, Any]) -> None:
    """Raise `OptionError` for values that TRL and transformers refuse late, or with a traceback."""
    for name, example in {"env_kwargs": '{"size": 5}', "chat_template_kwargs": '{"enable_thinking": false}'}.items():
        if isinstance(options[name], str):
            try:
                json.loads(options[name])
            except ValueError as error:
                raise OptionError(
                    f"{name} is {options[name]!r}, which is no JSON ({error}); for example '{example}'"
                ) from None
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(f"{name} is {value}; it takes a finite number")
        if name in _LEAST and value is not None and value < _LEAST[name]:
            raise OptionError(f"{name} is {value}; it must be at least {_LEAST[name]}")
    check_temperature("eval_temperature", options.get("eval_temperature", 0))


def _check_installed(options: Mapping[str, Any]) -> None:
    """Raise `OptionError` for an engine that is not there, which TRL and transformers meet with a traceback."""
    for name, there, extra, called in (
        ("use_vllm", is_vllm_available, "vllm", "vLLM"),
        ("deepspeed", is_deepspeed_available, "deepspeed", "DeepSpeed"),
    ):
        if options[name] and not there():
            raise OptionError(
                f"{name} is {options[name]}, but {called} is not installed; pip install -e '.[{extra}]', or leave it "
                "out"
            )


def _plain(default: Any) -> Any:
    return None if default is MISSING else default


def _typed(name: str, value: Any, action: Action) -> Any:
    if value is None:
        return None
    one = f"the config file has {name}: {value!r}; it takes one value"
    if isinstance(value, dict):
        if name not in ("env_kwargs", "eval_env_kwargs", *GRPOConfig._VALID_DICT_FIELDS):
            raise OptionError(one)
        return value
    if isinstance(value, list):
        if action.nargs == "+":
            return [_converted(name, each, action) for each in value]
        if action.type is not str or action.choices:  # options like report_to take one string or several
            raise OptionError(one)
        return value
    if action.nargs == "+":
        raise OptionError(f"the config file has {name}: {value!r}; it takes a list: [{value}]")
    return _converted(name, value, action)


def _converted(name: str, value: Any, action: Action) -> Any:
    fault = f"the config file has {name}: {value!r}"
    if isinstance(value, bool):
        if _name(action) == _TRUTH:
            return value
        raise OptionError(f"{fault}; it is no truth value (YAML reads yes, no, on and off as such: use quotes)")
    convert = action.type if callable(action.type) else str
    try:
        found = convert(str(value))
    except (ValueError, TypeError, ArgumentTypeError):
        kinds = {_TRUTH: "true or false", "int": "a whole number", "float": "a number"}
        raise OptionError(f"{fault}; it takes {kinds.get(_name(action), 'another kind of value')}") from None
    if action.choices is not None and found not in action.choices:
        raise OptionError(f"{fault}; choose one of {', '.join(map(str, action.choices))}")
    return found


def _name(action: Action) -> str:
    return str(getattr(action.type, "__name__", ""))


def read_yaml(path: Path) -> dict[str, Any]:
    """The options of a ``--config`` file, or `OptionError`; its mapping ``env`` sets environment variables."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise OptionError(f"{path} holds a {type(given).__name__}; it needs lines 'option: value'")
    if isinstance(given.get("env"), dict):
        os.environ.update({name: str(value) for name, value in given.pop("env").items()})
    return {str(name).replace("-", "_"): value for name, value in given.items()}
