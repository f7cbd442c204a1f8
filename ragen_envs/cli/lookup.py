"""Find and make the environment that a person named: ids, arguments as JSON, and what to say when they are wrong."""

import difflib
import inspect
import json
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator


class EnvironmentChoiceError(ValueError):
    """No environment can be made from what was named; the message says what there is instead."""


def environment_ids() -> list[str]:
    """Our ids, sorted."""
    return sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))


def make_named(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[str, str]:
    """Makes an environment.

    Args:
        env_id: Any Gymnasium id, ``module:id`` included.
        env_kwargs: Keyword arguments for it.

    Returns:
        What ``gymnasium.make`` returns, without its checker.

    Raises:
        EnvironmentChoiceError: If there is no such id, or the arguments do not suit it.
    """
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **env_kwargs)
    except ModuleNotFoundError as error:
        raise EnvironmentChoiceError(f"{env_id} cannot be made: {error}") from error
    except gymnasium.error.Error as error:
        if env_id in gymnasium.registry:
            raise EnvironmentChoiceError(f"{env_id} cannot be made: {error}") from error
        known = ", ".join(environment_ids())
        raise EnvironmentChoiceError(
            f"there is no environment {env_id!r}{_guess(env_id)}; known: {known}; yours: module:{env_id}"
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        accepted = _accepted(env_id)
        unknown = [name for name in env_kwargs if accepted and name not in accepted]
        if unknown:
            takes = ", ".join(accepted)
            raise EnvironmentChoiceError(f"{env_id} has no argument {unknown[0]!r}; it takes {takes}") from error
        raise EnvironmentChoiceError(f"{env_id} with --env_kwargs '{json.dumps(env_kwargs)}': {error}") from error


def read_env_kwargs(text: str) -> dict[str, Any]:
    """Reads keyword arguments written as a JSON object.

    Raises:
        EnvironmentChoiceError: If the text is none.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise EnvironmentChoiceError(f"{text!r} is no JSON ({error}); write '{{\"size\": 8}}'") from None
    if not isinstance(found, dict):
        raise EnvironmentChoiceError(f"{text!r} is no JSON object; write '{{\"size\": 8}}'")
    return found


def describe(env_id: str) -> str:
    """One line on a registered environment: the first of its docstring, and the arguments its id sets."""
    spec = gymnasium.spec(env_id)
    changed = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
    text = (inspect.getdoc(_creator(spec)) or "").partition("\n")[0]
    return f"{text} ({changed})" if changed else text


def _guess(env_id: str) -> str:
    """The id that was perhaps meant, also if only the name in it was given."""
    names = {known.casefold(): known for known in environment_ids()}
    names |= {known.removeprefix("ragen/").rpartition("-")[0].casefold(): known for known in environment_ids()}
    found = difflib.get_close_matches(env_id.casefold(), names, n=1)
    return f" (did you mean {names[found[0]]}?)" if found else ""


def _accepted(env_id: str) -> list[str]:
    """Names of an environment's arguments; none if they cannot be told."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    if spec is None:
        return []
    parameters = inspect.signature(_creator(spec)).parameters.values()
    return [] if any(each.kind is each.VAR_KEYWORD for each in parameters) else [each.name for each in parameters]


def _creator(spec: EnvSpec) -> Any:
    return load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
