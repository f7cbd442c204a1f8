"""Finds and makes the environment that a user names: ids, arguments as JSON, and helpful errors."""

import inspect
import json
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ragen_envs.errors import EnvError


class EnvironmentChoiceError(EnvError, ValueError):
    """No environment can be made from this id and these arguments; the message says which exist."""


def environment_ids() -> list[str]:
    """The ids of this package, sorted."""
    return sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))


def make_named(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[str, str]:
    """Makes an environment.

    Args:
        env_id: Any Gymnasium id, ``module:id`` included.
        env_kwargs: Keyword arguments of the environment.

    Returns:
        The environment of ``gymnasium.make``, without its checker.

    Raises:
        EnvironmentChoiceError: If the id does not exist, or does not take the arguments.
    """
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **env_kwargs)
    except ModuleNotFoundError as error:
        raise EnvironmentChoiceError(f"{env_id} cannot be made: {error}") from error
    except gymnasium.error.Error as error:
        if env_id in gymnasium.registry:
            raise EnvironmentChoiceError(f"{env_id} cannot be made: {error}") from error
        known = ", ".join(environment_ids())
        words = f"there is no environment {env_id!r}; known: {known}; for your own: module:{env_id}"
        raise EnvironmentChoiceError(words) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise EnvironmentChoiceError(f"{env_id} with --env_kwargs '{json.dumps(env_kwargs)}': {error}") from error


def one_line(env_id: str) -> str:
    """One line about a registered environment: the first line of its docstring, and the arguments that its id sets."""
    spec = gymnasium.spec(env_id)
    changed = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
    text = (inspect.getdoc(creator(spec)) or "").partition("\n")[0]
    return f"{text} ({changed})" if changed else text


def creator(spec: EnvSpec) -> Any:
    """The class or function that makes a registered environment."""
    return load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
