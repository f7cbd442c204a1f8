"""The environments of a run as data: which each is, with which arguments, and what it is called in metrics."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

from ragen_trl.errors import OptionError

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

EnvMaker = Callable[[], gymnasium.Env[str, str]]


@dataclass(frozen=True)
class EnvSpec:
    """One kind of environment of a run.

    Attributes:
        env: A Gymnasium id, or a function without arguments that makes a new environment.
        kwargs: Keyword arguments of ``gymnasium.make`` that JSON can hold; empty for a function.

    Raises:
        OptionError: If ``env`` is neither, a function has keyword arguments, or JSON cannot hold them.

    Example:
        >>> EnvSpec("ragen/Sokoban-v0", {"dim_room": [5, 5]}).name
        'Sokoban-v0'
    """

    env: str | EnvMaker
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str):
            if isinstance(self.env, gymnasium.Env) or not callable(self.env):
                raise OptionError(
                    f"env is {self.env!r}; pass a Gymnasium id, or a function that makes a new environment each time"
                )
            if self.kwargs:
                raise OptionError(f"env_kwargs is {self.kwargs}, but env is a function; set them inside the function")
        try:
            json.dumps(self.kwargs)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"env_kwargs {self.kwargs!r} of {self.env} cannot be written as JSON ({error}); pass a function that "
                "makes the environment with them"
            ) from error

    @property
    def name(self) -> str:
        """The id without its namespace, or the function's name. `unique_names` tells equal names apart."""
        if isinstance(self.env, str):
            return self.env.rpartition("/")[2].rpartition(":")[2]
        maker = self.env.func if isinstance(self.env, partial) else self.env
        return getattr(maker, "__name__", type(maker).__name__)

    @property
    def label(self) -> str:
        """The whole id, or the function's name; for data sets."""
        return self.env if isinstance(self.env, str) else self.name

    @property
    def key(self) -> tuple[str | EnvMaker, str]:
        """Equal for specs that describe the same environment, whatever the order of their keyword arguments."""
        return self.env, json.dumps(self.kwargs, sort_keys=True)


def env_specs(
    envs: str | EnvMaker | EnvSpec | Sequence[str | EnvMaker | EnvSpec], args: "StarPOConfig"
) -> list[EnvSpec]:
    """The environments of a run: ids, functions, or specs; ``args.env_kwargs`` belong to a single id.

    Raises:
        OptionError: If the list is empty, names an environment twice, or ``env_kwargs`` could belong to several.
    """
    listed = list(envs) if isinstance(envs, Sequence) and not isinstance(envs, str) else [envs]
    kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    if not listed:
        raise OptionError("the list of environments is empty; name at least one")
    if kwargs and (len(listed) > 1 or isinstance(listed[0], EnvSpec)):
        raise OptionError(
            f"env_kwargs is {kwargs}, which is for a single id; with several environments or a spec, give each its "
            "own: env=[EnvSpec(id, kwargs), …]"
        )
    specs = [env if isinstance(env, EnvSpec) else EnvSpec(env, kwargs) for env in listed]
    (most, times), *_ = Counter(spec.key for spec in specs).most_common()
    if times > 1:
        raise OptionError(
            f"{most[0]} with {most[1]} is listed {times} times; list it once, and set env_weights to play it more often"
        )
    return specs


def unique_names(specs: Sequence[EnvSpec]) -> list[str]:
    """Different names for metrics. Where names are equal, the keyword arguments that differ are added.

    Example:
        >>> unique_names([EnvSpec("ragen/FrozenLake-v0", {"size": 4}), EnvSpec("ragen/FrozenLake-v0", {"size": 5})])
        ['FrozenLake-v0(size=4)', 'FrozenLake-v0(size=5)']
    """
    names = []
    for spec in specs:
        others = [other.kwargs for other in specs if other.name == spec.name]
        told = {key: value for key, value in spec.kwargs.items() if any(other.get(key) != value for other in others)}
        text = ",".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in told.items())
        names.append(f"{spec.name}({text})" if text else spec.name)
    return [name if names.count(name) == 1 else f"{name}#{place}" for place, name in enumerate(names)]
