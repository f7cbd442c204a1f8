"""The environment that a command names is made once, so what it lacks is said in one line."""

import json
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from ragen_envs import EnvError, TextEnv, best_action, make_named, random_action
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.environments import make_turns


def json_object(name: str, value: object) -> dict[str, Any]:
    """Keyword arguments from an option: a mapping, JSON text of one, or nothing; `OptionError` for something else."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value or {}
        return {**found}
    except (ValueError, TypeError) as error:
        raise OptionError(f"{name} is {value!r}, which is no JSON object ({error})") from None


def check_env(env: str, args: StarPOConfig, kwargs: Mapping[str, Any] | None = None) -> None:
    """See that an environment can be made; arguments as for `make_turns`.

    Raises:
        EnvError: If there is no such id, or it does not take the arguments; it says what there is.
        OptionError: If it is not an environment of texts.
    """
    given = kwargs if kwargs is not None else args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    try:
        make_turns(env, args, given).close()
    except (UserError, EnvError):
        raise
    except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError):
        made = make_named(env, given)  # says what is wrong with the id or with an argument
        if isinstance(made.unwrapped, TextEnv):
            raise
        ours = f"ragen/{re.sub(r'-v[0-9]+$', '', env)}-v0"
        remedy = (
            f"did you mean {ours}?"
            if ours in gymnasium.registry
            else f"ragen_envs.TextFromDiscrete makes one of it, in a module of yours: --env module:{env}"
        )
        raise OptionError(f"env is {env!r}, which is no environment of texts; {remedy}") from None


def check_start(env: str, args: StarPOConfig, kwargs: Mapping[str, Any] | None = None) -> None:
    """See that an episode can begin: a split is known to the store of a shop, which opens then.

    Raises `EnvError` if the environment refuses one of its arguments.
    """
    turns = make_turns(env, args, kwargs)
    try:
        turns.reset(seed=0)
    finally:
        turns.close()


def missing_baseline(name: str, env: str, args: StarPOConfig) -> str:
    """Why an environment has no "random" or "oracle" policy; empty if it has.

    It is asked before anything is played: of processes that share an evaluation, one without episodes would not learn
    of it and would wait for the others.
    """
    turns = make_turns(env, args)
    turns.reset(seed=0)
    try:
        if name == "random":
            random_action(turns, np.random.default_rng(0))
        else:
            best_action(turns, turns.actions_left)
    except EnvError as error:  # also of an oracle that cannot see the goal, as it is on a server
        return str(error)
    finally:
        turns.close()
    return ""
