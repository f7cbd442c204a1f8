"""From the options of ``eval`` and ``play`` to a plan: how each model plays each environment.

All policies of a table play the same *task* (`TaskOptions`): what a model that was trained there has recorded in its
``play.json``, else the recipe's or RAGEN's limits, else the limits that the model recorded elsewhere. The *manner* in
which a model is spoken to (`MannerOptions`) depends on the model. The command line and the file override both.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen_trl.cli.options import OptionParser, check_env, check_single
from ragen_trl.config import options as declared
from ragen_trl.config.options import LIMITS, ApiArguments, EvaluationArguments, json_object
from ragen_trl.config.recipes import defaults, evaluation_kwargs, is_embedded, played
from ragen_trl.config.starpo import StarPOConfig, StarPOSConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.players import EvalPlan, Task, api_name
from ragen_trl.rollout.environments import EnvSpec, check_modules, env_specs, load_play_options, unique_names
from ragen_trl.rollout.seeds import evaluation_seeds

_Named = tuple[str, dict[str, Any] | None]  # a Gymnasium id, and all its arguments where the user wrote them


def read_plan(given: Mapping[str, Any], words: Sequence[str]) -> EvalPlan:
    """The plan of an evaluation, from the YAML file's options and the command line, which overrides them.

    Raises `OptionError` or `EnvError` for what cannot be used.
    """
    listed = {name: [given[name]] for name in ("env", "model") if isinstance(given.get(name), str)}
    given = {**given, **listed}
    first = OptionParser([EvaluationArguments, ApiArguments])
    first.set_defaults_with_config(**given)
    run, api, _ = first.parse_args_into_dataclasses(list(words), return_remaining_strings=True)
    if len(set(run.model)) < len(run.model):
        raise OptionError(f"model is {run.model}; list each once")
    records = {name: load_play_options(name) for name in run.model}
    said = {*(word.partition("=")[0].lstrip("-").replace("-", "_") for word in words), *given}
    for name, record in records.items():
        check_modules(name, record, "named" if run.env else None, "named" if "context" in said else None)
    named = [_named(text) for text in run.env] or [(_own_env(records), None)]
    if "temperature" in said:
        raise OptionError("temperature is that of training; evaluations are sampled at eval_temperature: set that")
    if "env_kwargs" in said and (len(named) > 1 or named[0][1] is not None):
        raise OptionError("env_kwargs is for one environment without arguments; write them after each: 'ID:{…}'")
    numbers = {defaults(env, None).get("eval_episodes") for env, _ in named}
    if "episodes" not in said and len(numbers) == 1:  # all have a fixed list of prompts of this length, or none has
        run.episodes = numbers.pop() or run.episodes
    evaluation_seeds(run.episodes)
    names = ["random", *run.model, *([name] if (name := api_name(api)) else [])]
    parsed = [{name: _configured(one, name, records, (run, api), given, words) for name in names} for one in named]
    tasks = _tasks(named, parsed)
    called = re.sub(r"[^a-z0-9.]+", "-", "-".join(["eval", *names[1:], "on", *(task.name for task in tasks)]).lower())
    folder = tasks[0].args["random"].output_dir or f"runs/{called[:200].strip('-')}"
    return EvalPlan(run, api, tasks, Path(folder))


def _named(text: str) -> _Named:
    """An environment as a user names it: ``ragen/Sokoban-v0``, or ``ragen/Sokoban-v0:{"num_boxes": 2}``."""
    env, mark, rest = text.partition(":{")
    return env, json_object(f"the arguments of env {text!r}", "{" + rest) if mark else None


def _own_env(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The environment without ``--env``: the one in which the models were trained, if they share one."""
    known = sorted({str(record.get("env", "several")) for record in records.values() if record})
    if len(known) > 1 or known == ["several"]:
        raise OptionError(f"the models were trained in {' and '.join(known)}; say with --env where they play")
    return known[0] if known else declared.ModelArguments.env


def _configured(
    named: _Named,
    player: str,
    records: Mapping[str, Mapping[str, Any]],
    arguments: tuple[EvaluationArguments, ApiArguments],
    given: Mapping[str, Any],
    words: Sequence[str],
) -> StarPOConfig:
    """The whole configuration under which a policy plays an environment."""
    (run, api), (env, written) = arguments, named
    record = records.get(player, {})
    known = next((other for other in (record, *records.values()) if other.get("env") == env), {})
    elsewhere = record or next((other for other in records.values() if other), {})
    # Random play has no recipe of its own: it plays what the models of its table play.
    models = [*run.model, *([api.api_model] if api.api_model else [])]
    model = api.api_model if player == api_name(api) else player if player != "random" else next(iter(models), "random")
    usual = {
        **_only(defaults(env, model), declared.option_names(StarPOSConfig)),
        **_only(elsewhere, LIMITS),
        **played(env, is_embedded(model)),
        **_only(known, (*LIMITS, "env_kwargs")),
        **_only(record, declared.MANNER),
    }
    task = usual.pop("env_kwargs", None) or {}  # what is there after parsing is the user's
    parser = OptionParser([EvaluationArguments, ApiArguments, StarPOSConfig])
    parser.set_defaults(**{"output_dir": "", **usual})  # with None, Transformers would use "trainer_output"
    parser.take(given, "the config file")
    args: StarPOConfig = parser.read(words)[0][-1]
    check_single(args)
    kwargs = json_object("env_kwargs", args.env_kwargs) if written is None else written
    if written is None and args.env_kwargs is None:  # the task's, without its training split
        kwargs = {**task, **evaluation_kwargs(env, task)}
    elif "split" not in kwargs:
        kwargs = {**evaluation_kwargs(env, {**_only(task, ("split",)), **kwargs}), **kwargs}
    args.env_kwargs = kwargs
    return args


def _tasks(named: Sequence[_Named], parsed: Sequence[Mapping[str, StarPOConfig]]) -> list[Task]:
    """The tasks, the same for all policies; each environment is made once to see that it can be."""
    specs = []
    for (env, _), args in zip(named, parsed, strict=True):
        settings = {name: {key: getattr(one, key) for key in ("env_kwargs", *LIMITS)} for name, one in args.items()}
        (first, expected), *others = list(settings.items())[1:] or list(settings.items())
        for name, found in others:
            for option, value in found.items():
                if value != expected[option]:
                    raise OptionError(
                        f"{env}: {first} plays with {option} {expected[option]}, {name} with {value}; one table "
                        f"needs one task: give --{option}, or evaluate the models separately"
                    )
        specs.append(EnvSpec(env, expected["env_kwargs"]))
        for one in args.values():
            one.env_kwargs = None  # the spec has them
        check_env(env, args["random"], specs[-1].kwargs)
    env_specs(specs, parsed[0]["random"])  # refuses one that is listed twice
    return [Task(*task) for task in zip(unique_names(specs), specs, parsed, strict=True)]


def _only(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}
