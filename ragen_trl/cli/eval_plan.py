"""From the options of ``python -m ragen_trl eval`` to a plan: how each model plays each environment.

*The task* is the keyword arguments of the environment, the limits of turns and actions and the format penalty. All
policies of a table play the same task: what a model that was trained there has recorded (``play.json``), else the
recipe's or RAGEN's limits, else the limits that the model recorded elsewhere. Where training is evaluated on another
split (``recipes.evaluation_kwargs``), so is this. *The manner* is how a model is spoken to: thoughts, lengths, system
prompt, forced prefix. It depends on the model. The command line and the YAML file override all of these.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from trl import TrlParser

from ragen_trl.cli.environments import check_env, json_object
from ragen_trl.cli.options import ALGORITHMS, OptionParser, check_ranges, check_single
from ragen_trl.config.commands import ApiArguments, EvaluationArguments, RunArguments
from ragen_trl.config.play import LIMITS, MANNER
from ragen_trl.config.recipes import EVALUATIONS, defaults, evaluation_kwargs, is_embedded, played
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.plan import EvalPlan, Task, api_name, task_limits
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.rollout.env_specs import EnvSpec, env_specs, unique_names
from ragen_trl.rollout.environments import check_modules, load_play_options
from ragen_trl.rollout.seeds import evaluation_seeds

_DEFAULT_ENV = "ragen/FrozenLake-v0"
# What a training file says beside the configuration, and what changes nothing in an evaluation.
_OF_TRAINING = {option.name for kind in (WarmStartConfig, RunArguments) for option in fields(kind)}
_OF_TRAINING -= {option.name for option in fields(EvaluationArguments)} | {"eval_episodes", "eval_env_kwargs"}
_EXAMPLE = """'ragen/Sokoban-v0:{"dim_room": [5, 5]}'"""


@dataclass(frozen=True)
class NamedEnv:
    """An environment as a user names it.

    Attributes:
        env: Gymnasium id.
        kwargs: Its keyword arguments, if the user gave any; ``None`` leaves them to the model and the recipes.
        changes: Keyword arguments that are added to those that it has otherwise.
        is_whole: Whether ``kwargs`` are all, also where they name no split: those of a run's evaluations.
    """

    env: str
    kwargs: Mapping[str, Any] | None = None
    changes: Mapping[str, Any] | None = None
    is_whole: bool = False


SUITES: dict[str, tuple[NamedEnv, ...]] = {
    "sokoban": (
        NamedEnv("ragen/Sokoban-v0"),
        NamedEnv("ragen/SokobanLarge-v0"),
        NamedEnv("ragen/Sokoban-v0", changes={"symbols": "W.GCBA@"}),
        NamedEnv("ragen/FrozenLake-v0"),
    ),
    "bandit": (NamedEnv("ragen/Bandit-v0"), NamedEnv("ragen/BanditRev-v0")),
}
"""RAGEN's tests of generalisation: trained on Sokoban, tested on larger rooms, other symbols and FrozenLake; trained on
Bandit, tested on BanditRev. The environment of training comes first."""


def read_plan(given: Mapping[str, Any], argv: Sequence[str]) -> EvalPlan:
    """The plan of an evaluation, from the YAML file's options and the command line, which overrides them.

    Raises:
        OptionError: If options are wrong, unknown or ambiguous, or the text of an environment cannot be read.
        SeedOverlapError: If there are not that many held-out start states.
        EnvError: If there is no such environment, or it does not take the arguments.
    """
    given = {name: value for name, value in given.items() if name not in _OF_TRAINING}
    given = {"episodes" if name == "eval_episodes" else name: value for name, value in given.items()}
    given |= {name: [given[name]] for name in ("env", "model") if isinstance(given.get(name), str)}
    changes = given.pop("eval_env_kwargs", None)
    first = TrlParser([EvaluationArguments, ApiArguments], add_help=False, allow_abbrev=False)
    first.set_defaults_with_config(**given)
    run, api, _ = first.parse_args_into_dataclasses(list(argv), return_remaining_strings=True)
    _check(run)
    records = {name: load_play_options(name) for name in run.model}
    words = [word.partition("=")[0].lstrip("-").replace("-", "_") for word in argv]
    env = "named" if run.env or run.suite else None
    context = "named" if "context" in (*words, *given) else None
    for name, record in records.items():
        check_modules(name, record, env, context)
    named = named_envs(run.env, run.suite) or [NamedEnv(_own_env(records))]
    if "temperature" in (*words, *given):
        raise OptionError(
            "temperature is that of training; evaluations are sampled at eval_temperature: set that, or delete "
            "temperature from the file or the command"
        )
    if changes is not None and "env_kwargs" not in words and len(named) == 1 and named[0].kwargs is None:
        kwargs = json_object("env_kwargs", given.pop("env_kwargs", None)) | json_object("eval_env_kwargs", changes)
        named = [replace(named[0], kwargs=kwargs, is_whole=True)]
    if "env_kwargs" in (*words, *given) and (len(named) > 1 or named[0].kwargs is not None):
        raise OptionError("env_kwargs is for one environment without arguments; write them after each: 'ID:{…}'")
    if "episodes" not in given and not {"episodes", "eval_episodes"} & set(words):
        run.episodes = _episodes(named, run.episodes)
    evaluation_seeds(run.episodes)
    names = ["random", *run.model, *([name] if (name := api_name(api)) else [])]
    parsed = [{name: _configured(env, name, records, (run, api), given, argv) for name in names} for env in named]
    tasks = _tasks(named, parsed)
    output_dir = tasks[0].args["random"].output_dir
    return EvalPlan(run, api, tasks, Path(output_dir) if output_dir else default_folder(names[1:], tasks))


def _episodes(named: Sequence[NamedEnv], default: int) -> int:
    """The number of start states: that of the fixed list of prompts, if all environments have one of this length."""
    found = {EVALUATIONS.get(one.env, {}).get("eval_episodes", default) for one in named}
    return int(found.pop()) if len(found) == 1 else default


def default_folder(models: Sequence[str], tasks: Sequence[Task]) -> Path:
    """The folder without ``--output_dir``: ``runs/eval-frozenlake-starpo-s-seed42-on-sokoban``."""
    # A model that this package trained is in RUN/model.
    paths = [Path(name.removesuffix(" (API)").removesuffix(".gguf")) for name in models]
    who = "-".join(path.parent.name if path.name == "model" and path.parent.name else path.name for path in paths)
    where = "-".join(re.sub(r"-v\d+(?=$|\()", "", task.name) for task in tasks[:2])
    where += f"-and-{len(tasks) - 2}-more" if len(tasks) > 2 else ""
    name = f"eval-{who}-on-{where}" if who else f"eval-on-{where}"
    return Path("runs") / re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _check(run: EvaluationArguments) -> None:
    if run.algo not in ALGORITHMS:
        raise OptionError(f"algo is {run.algo!r}; choose one of {', '.join(ALGORITHMS)}")
    for name in ("episodes", "samples_per_start", "side_by_side"):
        if getattr(run, name) < 1:
            raise OptionError(f"{name} is {getattr(run, name)}; give 1 or more")
    for twice in {name for name in run.model if run.model.count(name) > 1}:
        raise OptionError(f"model {twice!r} is listed {run.model.count(twice)} times; list it once")


def _own_env(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The environment without ``--env``: the one in which the models were trained, if they share one."""
    for name, record in records.items():
        if record and "env" not in record:
            raise OptionError(f"{name} has learnt in several environments, or in one without an id; choose with --env")
    known = sorted({str(record["env"]) for record in records.values() if "env" in record})
    if len(known) > 1:
        raise OptionError(f"the models were trained in {' and '.join(known)}; say with --env where they play")
    return known[0] if known else _DEFAULT_ENV


def _configured(
    named: NamedEnv,
    player: str,
    records: Mapping[str, Mapping[str, Any]],
    arguments: tuple[EvaluationArguments, ApiArguments],
    given: Mapping[str, Any],
    argv: Sequence[str],
) -> StarPOConfig:
    (run, api), env = arguments, named.env
    record = records.get(player, {})
    experts = [other for other in (record, *records.values()) if other.get("env") == env]
    known: Mapping[str, Any] = experts[0] if experts else {}
    elsewhere = record or next((other for other in records.values() if other), {})
    # Random play has no recipe of its own: it plays what the models of its table play.
    models = [*run.model, *([api.api_model] if api.api_model else [])]
    model = api.api_model if player == api_name(api) else player if player != "random" else next(iter(models), "random")
    parser = OptionParser("eval", [EvaluationArguments, ApiArguments, ALGORITHMS[run.algo]])
    parser.check_names(argv)
    parser.set_defaults(
        **{
            "output_dir": "",  # with None, transformers would use "trainer_output"
            **defaults(env, model, run.algo),
            **_only(elsewhere, LIMITS),
            **played(env, is_embedded(model)),
            **_only(known, (*LIMITS, "env_kwargs")),
            **_only(record, MANNER),
        }
    )
    task = parser.get_default("env_kwargs") or {}
    parser.set_defaults(env_kwargs=None)  # what is there after parsing is the user's
    unknown = parser.set_defaults_with_config(**given)
    if unknown:
        raise OptionError(f"the --config file has options that do not exist: {' '.join(unknown)}")
    try:
        check_ranges(vars(parser.parse_known_args(list(argv))[0]))
        args: StarPOConfig = parser.parse_args_into_dataclasses(list(argv))[-1]
    except (ValueError, TypeError) as error:  # also of TRL and transformers
        raise OptionError(str(error)) from None
    check_single(args)
    own = args.env_kwargs if isinstance(args.env_kwargs, dict) else None
    given_kwargs = own if named.kwargs is None else named.kwargs
    args.env_kwargs = dict(named.kwargs or {}) if named.is_whole else _evaluated_kwargs(env, task, given_kwargs)
    return args


def _evaluated_kwargs(env: str, task: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The environment's keyword arguments: the user's, else ``task``'s, whose training split is not evaluated."""
    if given is None:
        return {**task, **evaluation_kwargs(env, task)}
    if "split" in given:
        return dict(given)
    return {**evaluation_kwargs(env, {**_only(task, ("split",)), **given}), **given}


def _tasks(named: Sequence[NamedEnv], parsed: Sequence[Mapping[str, StarPOConfig]]) -> list[Task]:
    """The tasks, the same for all policies; each environment is made once to see that it can be."""
    specs = []
    for env, args in zip(named, parsed, strict=True):
        specs.append(EnvSpec(env.env, {**_agreed_kwargs(env.env, args), **(env.changes or {})}))
        for one in args.values():
            one.env_kwargs = None  # the spec has them
        check_env(env.env, args["random"], specs[-1].kwargs)
    env_specs(specs, parsed[0]["random"])  # refuses one that is listed twice
    return [Task(*task) for task in zip(unique_names(specs), specs, parsed, strict=True)]


def _agreed_kwargs(env: str, args: Mapping[str, StarPOConfig]) -> dict[str, Any]:
    """The environment's keyword arguments; `OptionError` if they, or the limits, differ between models."""
    settings = {name: {"env_kwargs": one.env_kwargs or {}, **task_limits(one)} for name, one in args.items()}
    (first, expected), *others = list(settings.items())[1:] or list(settings.items())
    for name, found in others:
        for option, value in found.items():
            if value != expected[option]:
                raise OptionError(
                    f"{env}: {first} plays with {option} {expected[option]}, {name} with {value}; one table needs one "
                    f"task: give --{option}, or evaluate the models separately"
                )
    return dict(expected["env_kwargs"])


def _only(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def read_spec(text: str) -> NamedEnv:
    r"""An environment from its text.

    Raises:
        OptionError: If the arguments are no JSON object.

    Example:
        >>> read_spec('ragen/Sokoban-v0:{"num_boxes": 2}').kwargs
        {'num_boxes': 2}
    """
    env, mark, rest = text.partition(":{")
    if not env:
        raise OptionError(f"env is {text!r}; give a Gymnasium id, with arguments if you like: {_EXAMPLE}")
    if not mark:
        return NamedEnv(env)
    try:
        return NamedEnv(env, json.loads("{" + rest))
    except ValueError as error:
        raise OptionError(
            f"the arguments of env {text!r} are no JSON ({error}); write them in quotes, like {_EXAMPLE}"
        ) from None


def named_envs(texts: Sequence[str], suite: str | None) -> list[NamedEnv]:
    """The environments of ``texts``, or of the suite; `OptionError` if both are given, or there is no such suite."""
    if suite is None:
        return [read_spec(text) for text in texts]
    if texts:
        raise OptionError(f"suite is {suite!r} and env {list(texts)}; give one of them")
    if suite not in SUITES:
        raise OptionError(f"suite is {suite!r}; choose one of {', '.join(SUITES)}, or list environments with --env")
    return list(SUITES[suite])
