"""From the options of ``eval`` and ``play`` to a plan: how each model plays each environment.

*The task* is the keyword arguments of the environment, the limits of turns and actions and the format penalty. All
policies of a table play the same task: what a model that was trained there has recorded (``play.json``), else the
recipe's or RAGEN's limits, else the limits that the model recorded elsewhere. *The manner* is how a model is spoken to:
thoughts, lengths, system prompt, forced prefix. It depends on the model. The command line and the file override both.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ragen_trl.cli.environments import check_env, json_object
from ragen_trl.cli.options import OptionParser, check_single
from ragen_trl.config.options import LIMITS, MANNER, ApiArguments, EvaluationArguments, ModelArguments, option_names
from ragen_trl.config.recipes import defaults, evaluation_defaults, evaluation_kwargs, is_embedded, played
from ragen_trl.config.starpo import StarPOConfig, StarPOSConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.plan import EvalPlan, Task, api_name, task_limits
from ragen_trl.rollout.env_specs import EnvSpec, env_specs, unique_names
from ragen_trl.rollout.environments import check_modules, load_play_options
from ragen_trl.rollout.seeds import evaluation_seeds


class NamedEnv(NamedTuple):
    """An environment as a user names it: a Gymnasium id, with all its arguments, or with some that are changed."""

    env: str
    kwargs: Mapping[str, Any] | None = None
    changes: Mapping[str, Any] | None = None


# RAGEN's tests of generalisation; the environment of training comes first.
SUITES: dict[str, tuple[NamedEnv, ...]] = {
    "sokoban": (
        NamedEnv("ragen/Sokoban-v0"),
        NamedEnv("ragen/SokobanLarge-v0"),
        NamedEnv("ragen/Sokoban-v0", changes={"symbols": "W.GCBA@"}),
        NamedEnv("ragen/FrozenLake-v0"),
    ),
    "bandit": (NamedEnv("ragen/Bandit-v0"), NamedEnv("ragen/BanditRev-v0")),
}


def read_plan(given: Mapping[str, Any], words: Sequence[str]) -> EvalPlan:
    """The plan of an evaluation, from the YAML file's options and the command line, which overrides them.

    Raises:
        OptionError: If options are wrong, unknown or ambiguous, or the text of an environment cannot be read.
        SeedOverlapError: If there are not that many held-out start states.
        EnvError: If there is no such environment, or it does not take the arguments.
    """
    given = {
        name: [value] if name in ("env", "model") and isinstance(value, str) else value for name, value in given.items()
    }
    first = OptionParser([EvaluationArguments, ApiArguments])
    first.set_defaults_with_config(**given)
    run, api, _ = first.parse_args_into_dataclasses(list(words), return_remaining_strings=True)
    if len(set(run.model)) < len(run.model):
        raise OptionError(f"model is {run.model}; list each once")
    records = {name: load_play_options(name) for name in run.model}
    said = {*(word.partition("=")[0].lstrip("-").replace("-", "_") for word in words), *given}
    for name, record in records.items():
        check_modules(name, record, "named" if run.env or run.suite else None, "named" if "context" in said else None)
    named = named_envs(run.env, run.suite) or [NamedEnv(_own_env(records))]
    if "temperature" in said:
        raise OptionError("temperature is that of training; evaluations are sampled at eval_temperature: set that")
    if "env_kwargs" in said and (len(named) > 1 or named[0].kwargs is not None):
        raise OptionError("env_kwargs is for one environment without arguments; write them after each: 'ID:{…}'")
    if not said & {
        "episodes",
        "eval_episodes",
    }:  # the number of a fixed list of prompts, if all have one of this length
        numbers = {evaluation_defaults(one.env).get("eval_episodes", run.episodes) for one in named}
        run.episodes = numbers.pop() if len(numbers) == 1 else run.episodes
    evaluation_seeds(run.episodes)
    names = ["random", *run.model, *([name] if (name := api_name(api)) else [])]
    parsed = [{name: _configured(env, name, records, (run, api), given, words) for name in names} for env in named]
    tasks = _tasks(named, parsed)
    output_dir = tasks[0].args["random"].output_dir
    return EvalPlan(run, api, tasks, Path(output_dir) if output_dir else default_folder(names[1:], tasks))


def named_envs(texts: Sequence[str], suite: str | None) -> list[NamedEnv]:
    r"""The environments of ``texts``, or of the suite.

    Raises:
        OptionError: If both are given, there is no such suite, or arguments are no JSON object.

    Example:
        >>> named_envs(['ragen/Sokoban-v0:{"num_boxes": 2}'], None)[0].kwargs
        {'num_boxes': 2}
    """
    if suite is not None and (texts or suite not in SUITES):
        raise OptionError(f"suite is {suite!r} and env {list(texts)}; give one of {', '.join(SUITES)}, or --env alone")
    if suite is not None:
        return list(SUITES[suite])
    found = []
    for text in texts:
        env, mark, rest = text.partition(":{")
        try:
            found.append(NamedEnv(env, json.loads("{" + rest) if mark else None))
        except ValueError as error:
            raise OptionError(
                f"the arguments of env {text!r} are no JSON ({error}); write them in quotes, like "
                """'ragen/Sokoban-v0:{"dim_room": [5, 5]}'"""
            ) from None
    return found


def default_folder(models: Sequence[str], tasks: Sequence[Task]) -> Path:
    """The folder without ``--output_dir``: ``runs/eval-frozenlake-starpo-s-seed42-on-sokoban``."""
    # A model that this package trained is in RUN/model.
    paths = [Path(name.removesuffix(" (API)").removesuffix(".gguf")) for name in models]
    who = "-".join(path.parent.name if path.name == "model" and path.parent.name else path.name for path in paths)
    where = "-".join(re.sub(r"-v\d+(?=$|\()", "", task.name) for task in tasks[:2])
    where += f"-and-{len(tasks) - 2}-more" if len(tasks) > 2 else ""
    name = f"eval-{who}-on-{where}" if who else f"eval-on-{where}"
    return Path("runs") / re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _own_env(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The environment without ``--env``: the one in which the models were trained, if they share one."""
    known = sorted({str(record.get("env", "several")) for record in records.values() if record})
    if len(known) > 1 or known == ["several"]:
        raise OptionError(f"the models were trained in {' and '.join(known)}; say with --env where they play")
    return known[0] if known else ModelArguments.env


def _configured(
    named: NamedEnv,
    player: str,
    records: Mapping[str, Mapping[str, Any]],
    arguments: tuple[EvaluationArguments, ApiArguments],
    given: Mapping[str, Any],
    words: Sequence[str],
) -> StarPOConfig:
    """The whole configuration under which a policy plays an environment."""
    (run, api), env = arguments, named.env
    record = records.get(player, {})
    known = next((other for other in (record, *records.values()) if other.get("env") == env), {})
    elsewhere = record or next((other for other in records.values() if other), {})
    # Random play has no recipe of its own: it plays what the models of its table play.
    models = [*run.model, *([api.api_model] if api.api_model else [])]
    model = api.api_model if player == api_name(api) else player if player != "random" else next(iter(models), "random")
    parser = OptionParser([EvaluationArguments, ApiArguments, StarPOSConfig])
    parser.set_defaults(
        **{
            "output_dir": "",  # with None, Transformers would use "trainer_output"
            **_only(defaults(env, model), option_names(StarPOSConfig)),
            **_only(elsewhere, LIMITS),
            **played(env, is_embedded(model)),
            **_only(known, (*LIMITS, "env_kwargs")),
            **_only(record, MANNER),
        }
    )
    task = parser.get_default("env_kwargs") or {}
    parser.set_defaults(env_kwargs=None)  # what is there after parsing is the user's
    parser.take(given, "the config file")
    try:
        args: StarPOConfig = parser.parse_dict(parser.read(words))[-1]
    except (ValueError, TypeError) as error:  # also of TRL and Transformers
        raise OptionError(str(error)) from None
    check_single(args)
    kwargs = json_object("env_kwargs", args.env_kwargs) if named.kwargs is None else dict(named.kwargs)
    if not kwargs and named.kwargs is None and args.env_kwargs is None:  # the task's, without its training split
        kwargs = {**task, **evaluation_kwargs(env, task)}
    elif "split" not in kwargs:
        kwargs = {**evaluation_kwargs(env, {**_only(task, ("split",)), **kwargs}), **kwargs}
    args.env_kwargs = kwargs
    return args


def _tasks(named: Sequence[NamedEnv], parsed: Sequence[Mapping[str, StarPOConfig]]) -> list[Task]:
    """The tasks, the same for all policies; each environment is made once to see that it can be."""
    specs = []
    for env, args in zip(named, parsed, strict=True):
        settings = {name: {"env_kwargs": one.env_kwargs or {}, **task_limits(one)} for name, one in args.items()}
        (first, expected), *others = list(settings.items())[1:] or list(settings.items())
        for name, found in others:
            for option, value in found.items():
                if value != expected[option]:
                    raise OptionError(
                        f"{env.env}: {first} plays with {option} {expected[option]}, {name} with {value}; one table "
                        f"needs one task: give --{option}, or evaluate the models separately"
                    )
        specs.append(EnvSpec(env.env, {**expected["env_kwargs"], **(env.changes or {})}))
        for one in args.values():
            one.env_kwargs = None  # the spec has them
        check_env(env.env, args["random"], specs[-1].kwargs)
    env_specs(specs, parsed[0]["random"])  # refuses one that is listed twice
    return [Task(*task) for task in zip(unique_names(specs), specs, parsed, strict=True)]


def _only(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}
