"""The arguments of a trainer that TRL's users know: what becomes of reward functions, and what is refused by name."""

import copy
import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel
from trl.trainer.utils import get_callable_name

from ragen_trl.config.checks import REFUSED_ARGUMENTS
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.training.launch import use_one_device

RewardFunction: TypeAlias = str | PreTrainedModel | Callable[..., Any]
"""As in TRL: a function, also an asynchronous one; a reward model; or the path or hub id of one."""

_ORDER = (
    "GRPOTrainer's order is (model, reward_funcs, args, train_dataset), that of this trainer is (model, env, args, "
    "processing_class): name them, reward_funcs=…, train_dataset=…"
)


class ArgumentError(UserError, TypeError):
    """A trainer's argument is of the wrong kind, or is one of TRL's that this package replaces."""


def check_arguments(env: Any, processing_class: Any, refused: Mapping[str, Any]) -> None:
    """Refuse arguments in GRPOTrainer's order, and arguments of GRPOTrainer that do not exist here.

    Raises:
        ArgumentError: With the remedy.
        OptionError: If ``env`` is a reward function or a reward model.
    """
    for name, value in refused.items():
        if value is not None:
            raise ArgumentError(f"{name} is given; {REFUSED_ARGUMENTS[name]}")
    if isinstance(processing_class, Dataset | IterableDataset | dict):
        raise ArgumentError(f"processing_class is a {type(processing_class).__name__}. {_ORDER}")
    for one in env if isinstance(env, list | tuple) else [env]:
        plain = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [each.name for each in _parameters(one) if each.default is each.empty and each.kind not in plain]
        if needed or isinstance(one, torch.nn.Module):
            raise OptionError(f"env is {get_callable_name(one)}, a reward model or a function of {needed}. {_ORDER}")


def own_arguments(kind: type, args: Any) -> StarPOConfig:
    """A copy of a trainer's configuration, which the caller's does not follow.

    Raises:
        OptionError: If it is no configuration, or one of another trainer.
    """
    if not isinstance(args, StarPOConfig):
        given = args if args is None or isinstance(args, str) else f"a {type(args).__name__}"
        raise OptionError(f"args is {given}; pass a StarPOConfig, which says where the run goes and how it plays")
    if args._trainer not in (None, *(one.__name__ for one in kind.__mro__)):
        raise OptionError(
            f"args is a {type(args).__name__}, most of whose options {kind.__name__} does not read; make a "
            f"{args._trainer} with it"
        )
    own = copy.copy(args)
    for name, value in vars(args).items():
        if isinstance(value, dict | list):
            setattr(own, name, copy.deepcopy(value))
    use_one_device(own)
    return own


def policy_for_trl(model: str | PreTrainedModel, processing_class: Any) -> str | PreTrainedModel:
    """The policy as TRL takes it; `ArgumentError` for a model in memory without a tokenizer."""
    if isinstance(model, str):
        return model
    if processing_class is None and not model.config.name_or_path:
        raise ArgumentError(
            "processing_class is not given, and a model that was built in memory has no path to load a tokenizer from; "
            "pass processing_class=tokenizer"
        )
    return model


def environment_return(episode_return: list[float], **_: Any) -> list[float]:
    """The first reward function that TRL gets: each trajectory's undiscounted return, format penalties included."""
    return episode_return


def listed_rewards(reward_funcs: Any) -> list[RewardFunction]:
    """Reward functions as a list; a text or a path is one model. `ArgumentError` for anything else."""
    single = isinstance(reward_funcs, str | os.PathLike) or callable(reward_funcs)
    given = [reward_funcs] if single else list(reward_funcs or [])
    for one in given:
        if not (isinstance(one, str | os.PathLike) or callable(one)):
            raise ArgumentError(
                f"reward_funcs has {one!r}; give functions, reward models, or the path or hub id of a reward model"
            )
    return [os.fspath(one) if isinstance(one, os.PathLike) else one for one in given]


def reward_names(functions: Sequence[RewardFunction]) -> list[str]:
    """The names of reward functions in TRL's metrics; those that come several times are numbered."""
    names = []
    for function in functions:
        path = function.config.name_or_path if isinstance(function, torch.nn.Module) else function
        names.append(path.rstrip("/").rpartition("/")[2] if isinstance(path, str) else str(get_callable_name(function)))
    counts, used, found = Counter(names), Counter[str](), []
    for name in names:
        used[name] += 1
        found.append(name if counts[name] == 1 else f"{name}_{used[name]}")
    return found if len(set(found)) == len(found) else [f"{name}_{place}" for place, name in enumerate(names)]


def aligned_processing_classes(given: Any, count: int) -> list[Any] | None:
    """TRL's list of tokenizers of reward models, with one for the return; `ArgumentError` if not as many."""
    if given is None:
        return None
    classes = given if isinstance(given, list) else [given]
    if len(classes) != count:
        raise ArgumentError(
            f"there are {len(classes)} reward_processing_classes for {count} reward_funcs; give one each, None for a "
            "function"
        )
    return [None, *classes]


def check_columns(functions: Sequence[Any], missing: Sequence[str]) -> None:
    """Raise `ArgumentError` for evaluation rows that lack columns which parameters of reward functions name."""
    for function in functions:
        named = [one.name for one in _parameters(function) if one.name in missing]
        if named:
            raise ArgumentError(
                f"reward function {get_callable_name(function)} reads {', '.join(named)} of train_dataset, which the "
                f"rows of the evaluation do not have; pass an eval_dataset with seed and {', '.join(named)}"
            )


def _parameters(function: Any) -> list[inspect.Parameter]:
    if not callable(function) or isinstance(function, torch.nn.Module):
        return []
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return []
