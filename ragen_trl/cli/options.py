"""From a command line to configurations: recipe, a saved model's ``play.json``, YAML file, options as typed.

The parser is TRL's: options are the fields of the dataclasses. `parse` is for commands that train, `read_plan` for
those that only play.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import yaml
from trl import GRPOConfig, TrlParser

from ragen_envs import EnvError, make_named
from ragen_trl.config.names import check_names, typed
from ragen_trl.config.options import (
    MANNER,
    ApiArguments,
    EvaluationArguments,
    ModelArguments,
    RunArguments,
    TaskOptions,
    json_object,
    option_names,
)
from ragen_trl.config.recipes import defaults, evaluation_kwargs, options_for
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig, StarPOSConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.comparison import EvalPlan, api_name
from ragen_trl.rollout.environments import EnvSpec, load_play_options, make_turns
from ragen_trl.rollout.seeds import evaluation_seeds
from ragen_trl.system.processes import launched

ALGORITHMS: dict[str, type[StarPOConfig]] = {
    "starpo": StarPOConfig,
    "starpo-s": StarPOSConfig,
    "a-star-po": AStarPOConfig,
}
_TASK = option_names(TaskOptions)
# The options that decide the defaults of all others.
_DECIDING = ("env", "algo", "advantage", "model", "context", "env_kwargs")
_NEVER_WRITTEN = ("hub_token", "overwrite", "output_dir")
# Options of several environments, rewards or a data set, and the values that they keep here.
_OF_SCRIPTS = {"env_weights": None, "reward_weights": None, "num_train_epochs": GRPOConfig.num_train_epochs}


class OptionParser(TrlParser):  # type: ignore[misc]
    """TRL's parser without abbreviated names, whose meaning changes with new options; it raises `OptionError`."""

    def __init__(self, classes: Sequence[Any]) -> None:
        super().__init__(classes, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing argparse's usage, which has several hundred lines."""
        raise OptionError(message)

    def take(self, given: Mapping[str, Any]) -> None:
        """Take defaults from a file; `OptionError` for a name that is no option."""
        check_names("the config file has", given, {action.dest for action in self._actions})
        self.set_defaults_with_config(**given)

    def read(self, words: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An object of each class, the training configuration last, and all options by name.

        Raises `OptionError` for what nobody knows or can use.
        """
        found, unknown = self.parse_known_args(list(words))
        check_names("there is no option", [word.partition("=")[0] for word in unknown[:1]], self._option_string_actions)
        try:
            parsed = tuple(self.parse_dict(dict(vars(found))))
        except (ValueError, TypeError, ImportError) as error:
            raise OptionError(str(error)) from None
        for name, only in _OF_SCRIPTS.items():
            if (value := getattr(parsed[-1], name)) != only:
                raise OptionError(f"{name} is {value}, which is for scripts of your own; leave it out here")
        return parsed, vars(found)


def parse(given: Mapping[str, Any], words: Sequence[str], *classes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the options: command line, then YAML file (``given``), the model's play.json, and the recipe.

    Returns an object of each of ``classes`` and last the training configuration, and the options that make the same
    objects when they are given again. Raises `OptionError` or `EnvError` for what cannot be used.
    """
    said = {**given, **typed(words)}
    chosen = {name: said.get(name) for name in _DECIDING}
    recorded = load_play_options(chosen["model"], [name for name in _DECIDING if chosen[name]])
    usual = {"env": recorded.get("env", ModelArguments.env), "algo": ModelArguments.algo, "advantage": "group"}
    env, algo, advantage = (str(chosen[name] or usual[name]) for name in ("env", "algo", "advantage"))
    check_names("there is no algo", [algo], ALGORITHMS)
    if recorded.get("env") != env:
        recorded.pop("env_kwargs", None)

    parser = OptionParser([*classes, ALGORITHMS[algo]])
    recipe = defaults(env, chosen["model"], algo, advantage)
    recipe = {name: value for name, value in recipe.items() if name in {action.dest for action in parser._actions}}
    # "" means no folder yet: with None, Transformers would use "trainer_output".
    ours = {"output_dir": "", **recipe, **recorded, "env": env, "algo": algo}
    parser.set_defaults_with_config(**ours)
    parser.take(options_for(given, env, algo))
    plain = {option.name: option.default for kind in parser.dataclass_types for option in fields(kind)}
    plain = {name: None if default is MISSING else default for name, default in plain.items()}
    if launched() > 1 and "ddp_timeout" not in given:  # processes play unequal numbers of turns
        plain["ddp_timeout"] = 86_400
        parser.set_defaults(ddp_timeout=86_400)
    parsed, options = parser.read(words)
    args = parsed[-1]
    if isinstance(parsed[0], RunArguments) and parsed[0].eval_env_kwargs is None:
        parsed[0].eval_env_kwargs = evaluation_kwargs(env, args.env_kwargs or {}) or None
    check_env(env, args)
    return parsed, {name: value for name, value in options.items() if name in ours or value != plain[name]}


def options_as_yaml(options: Mapping[str, Any], folder: Path, command: str = "train") -> str:
    """The text of a ``--config`` file that repeats a run, from the options that `parse` returns."""
    head = f"# python -m ragen_trl {command} --config {folder / 'config.yaml'}\n"
    kept = {name: value for name, value in options.items() if name not in _NEVER_WRITTEN}
    content = json.loads(json.dumps({**kept, "output_dir": str(folder)}, default=str))
    return head + yaml.safe_dump(content, sort_keys=True, allow_unicode=True)


def read_plan(given: Mapping[str, Any], words: Sequence[str]) -> EvalPlan:
    """The plan of ``eval`` and ``play``, from the YAML file's options and the command line, which overrides them.

    All policies of a table play the same *task* (`TaskOptions`): what the first model that was trained there has
    recorded in its ``play.json``, else the first model's recipe. The *manner* in which a model is spoken to
    (`MannerOptions`) is its own. The command line and the file override both. Raises `OptionError` or `EnvError` for
    what cannot be used.
    """
    if isinstance(given.get("model"), str):
        given = {**given, "model": [given["model"]]}
    first = OptionParser([EvaluationArguments, ApiArguments])
    first.set_defaults_with_config(**given)
    run, api, _ = first.parse_args_into_dataclasses(list(words), return_remaining_strings=True)
    said = {*typed(words), *given}
    if "temperature" in said:
        raise OptionError("temperature is that of training; evaluations are sampled at eval_temperature: set that")
    records = {name: load_play_options(name, said) for name in run.model}
    trained = sorted({str(record.get("env", "several")) for record in records.values() if record})
    if run.env is None and (len(trained) > 1 or trained == ["several"]):
        raise OptionError(f"the models were trained in {' and '.join(trained)}; say with --env where they play")
    env = run.env or (trained[0] if trained else ModelArguments.env)
    if "episodes" not in said:  # an environment may have a fixed list of prompts
        run.episodes = defaults(env, None).get("eval_episodes", run.episodes)
    evaluation_seeds(run.episodes)

    players = {name: name for name in run.model}
    if api.api_model is not None:
        players[str(api_name(api))] = api.api_model
    players = {"random": next(iter(players.values()), "random"), **players}  # random play has no recipe of its own
    known = next((record for record in records.values() if record.get("env") == env), {})
    task = _only(defaults(env, players["random"]), _TASK) | _only(known, _TASK)
    kwargs = task.pop("env_kwargs", None) or {}
    args: dict[str, StarPOConfig] = {}
    for name, model in players.items():
        manner = {option: value for option, value in defaults(env, model).items() if option not in _TASK}
        usual = manner | task | _only(records.get(name, {}), MANNER)
        parser = OptionParser([EvaluationArguments, ApiArguments, StarPOSConfig])
        parser.set_defaults(**{"output_dir": "", **_only(usual, option_names(StarPOSConfig)), "env_kwargs": None})
        parser.take(given)
        args[name] = parser.read(words)[0][-1]
    if args["random"].env_kwargs is None:  # the task's, without its training split
        kwargs = {**kwargs, **evaluation_kwargs(env, kwargs)}
    else:
        written = json_object("env_kwargs", args["random"].env_kwargs)
        held_out = {} if "split" in written else evaluation_kwargs(env, {**_only(kwargs, ("split",)), **written})
        kwargs = {**held_out, **written}
    for one in args.values():
        one.env_kwargs = None  # the plan has them
    spec = EnvSpec(env, kwargs)
    check_env(env, args["random"], kwargs)
    called = re.sub(r"[^a-z0-9.]+", "-", "-".join(["eval", *list(players)[1:], "on", spec.name]).lower())
    folder = args["random"].output_dir or f"runs/{called[:200].strip('-')}"
    return EvalPlan(run, api, spec, args, Path(folder))


def check_env(env: str, args: StarPOConfig, kwargs: Mapping[str, Any] | None = None) -> None:
    """Make an environment once, so what it lacks is said in one line before anything is played.

    Arguments are as for `make_turns`. `EnvError` says which ids or arguments there are.
    """
    try:
        make_turns(env, args, kwargs).close()
    except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
        if not isinstance(error, (UserError, EnvError)):
            make_named(env, json_object("env_kwargs", args.env_kwargs) if kwargs is None else kwargs).close()
            raise OptionError(f"env is {env!r}: {error}; see docs/your_own_environment.md") from None
        raise


def _only(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}
