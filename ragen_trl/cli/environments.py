"""The environment that a command names is made once, so what it lacks is said in one line before anything is played."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from ragen_envs import EnvError, best_action, make_named, random_action
from ragen_trl.config.options import json_object
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.rollout.environments import make_turns


def check_env(env: str, args: StarPOConfig, kwargs: Mapping[str, Any] | None = None) -> None:
    """See that an environment can be made; arguments as for `make_turns`.

    Raises:
        EnvError: If there is no such id, or it does not take the arguments; it says what there is.
        OptionError: If it is not an environment of texts.
    """
    try:
        make_turns(env, args, kwargs).close()
    except (UserError, EnvError):
        raise
    except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
        make_named(env, json_object("env_kwargs", args.env_kwargs) if kwargs is None else kwargs).close()  # says what
        raise OptionError(
            f"env is {env!r}, which is no environment of texts ({error}); ragen_envs.TextFromDiscrete makes one of it, "
            f"in a module of yours: --env module:{env}"
        ) from None


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
