"""Several environments in one run: how each is named, the instances that rollouts share, and how well each was played.

A run with one environment is a run with a list of one. Left out: opening and closing environments between rollouts,
because a store or a server behind one is dear to start, and different turn limits or reply formats per environment,
because one chat serves them all.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium

from ragen_envs import AgentTurns
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.environments import about, make_turns
from ragen_trl.rollout.interfaces import Penalties, Policy, Start, TurnEnv
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

EnvMaker = Callable[[], gymnasium.Env[str, str]]


class EnvSpecError(UserError, ValueError):
    """An environment, or a list of them, is described in a way that cannot be played."""


@dataclass(frozen=True)
class EnvSpec:
    """One kind of environment of a run.

    Attributes:
        env: A Gymnasium id, or a function without arguments that makes a new environment.
        kwargs: Keyword arguments of ``gymnasium.make``, such as JSON can hold; empty for a function.

    Raises:
        EnvSpecError: If there are keyword arguments next to a function, or some that JSON cannot hold.

    Example:
        >>> EnvSpec("ragen/Sokoban-v0", {"dim_room": [5, 5]}).name
        'Sokoban-v0'
    """

    env: str | EnvMaker
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) and (isinstance(self.env, gymnasium.Env) or not callable(self.env)):
            raise EnvSpecError(
                f"env is {self.env!r}; pass a Gymnasium id, or a function that makes a new environment at every call"
            )
        if not isinstance(self.env, str) and self.kwargs:
            raise EnvSpecError(f"env_kwargs is {self.kwargs}, but env is a function; let the function set them")
        try:
            json.dumps(self.kwargs)
        except (TypeError, ValueError) as error:
            raise EnvSpecError(
                f"env_kwargs {self.kwargs!r} of {self.env} are no JSON ({error}); pass a function that makes the "
                "environment with them"
            ) from error

    @property
    def name(self) -> str:
        """The id without its namespace, or the function's name; `unique_names` tells several of one name apart."""
        if isinstance(self.env, str):
            return self.env.rpartition("/")[2].rpartition(":")[2]
        maker: Any = self.env
        while isinstance(maker, partial):
            maker = maker.func
        return getattr(maker, "__name__", type(maker).__name__)

    @property
    def label(self) -> str:
        """For data sets: the whole id, or the function's name."""
        return self.env if isinstance(self.env, str) else self.name

    @property
    def key(self) -> tuple[str | EnvMaker, str]:
        """Equal for specs whose environments can stand in for each other: keyword arguments in any order."""
        return self.env, json.dumps(self.kwargs, sort_keys=True)


def env_specs(envs: str | EnvMaker | EnvSpec | Sequence[str | EnvMaker | EnvSpec], args: StarPOConfig) -> list[EnvSpec]:
    """The environments of a run.

    Args:
        envs: One environment or a list of them: ids, functions, or specs with keyword arguments of their own.
        args: ``env_kwargs`` are those of a single id.

    Raises:
        EnvSpecError: If the list is empty, has the same environment twice, or ``env_kwargs`` could mean several.
    """
    listed = list(envs) if isinstance(envs, Sequence) and not isinstance(envs, str) else [envs]
    kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    if not listed:
        raise EnvSpecError("the list of environments is empty; name at least one")
    if kwargs and (len(listed) > 1 or isinstance(listed[0], EnvSpec)):
        raise EnvSpecError(
            f"env_kwargs is {kwargs}, which is for a single id; with several environments, or a spec, give each its "
            "own: env=[EnvSpec(id, kwargs), …]"
        )
    specs = [env if isinstance(env, EnvSpec) else EnvSpec(env, kwargs) for env in listed]
    counts = Counter(spec.key for spec in specs)
    for spec in specs:
        if counts[spec.key] > 1:
            raise EnvSpecError(
                f"{spec.label} with {dict(spec.kwargs)} is listed {counts[spec.key]} times; list it once, and say with "
                "env_weights how often it is played"
            )
    return specs


def unique_names(specs: Sequence[EnvSpec]) -> list[str]:
    """Names for metrics, all different: of one name, the keyword arguments that are not the same tell them apart.

    Args:
        specs: The environments of a run.

    Example:
        >>> unique_names([EnvSpec("ragen/FrozenLake-v0", {"size": 4}), EnvSpec("ragen/FrozenLake-v0", {"size": 5})])
        ['FrozenLake-v0(size=4)', 'FrozenLake-v0(size=5)']
    """
    names = []
    for spec in specs:
        others = [dict(other.kwargs) for other in specs if other.name == spec.name and other is not spec]
        told = {key: value for key, value in spec.kwargs.items() if any(other.get(key) != value for other in others)}
        text = ",".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in told.items())
        names.append(f"{spec.name}({text})" if text else spec.name)
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name}#{place}" for place, name in enumerate(names)]


class EnvPool:
    """Environments that are made once and played again in every rollout.

    Args:
        args: Turn limits, penalties and reply format of all of them, and how they are stepped.
        adapt: Called with each one that is made.
    """

    def __init__(self, args: StarPOConfig, adapt: Callable[[AgentTurns], None] = lambda turns: None) -> None:
        self._args, self._adapt = args, adapt
        self._stepper = EnvExecutor(args.env_workers, args.env_timeout)
        self._made: dict[tuple[str | EnvMaker, str], list[AgentTurns]] = {}
        self._prefix: str | None = None

    def take(self, specs: Sequence[EnvSpec]) -> list[AgentTurns]:
        """One environment per row, in order; all may be played side by side.

        Equal rows get different instances. The same ones come back at the next call, and new ones are made only where
        more are asked for than ever before.

        Raises:
            EnvSpecError: If a function returns an environment that it returned before, or one whose replies start
                with another tag than those of the environments made before.
            gymnasium.error.NameNotFound: If an id is unknown.
        """
        used: Counter[tuple[str | EnvMaker, str]] = Counter()
        taken = []
        for spec in specs:
            made = self._made.setdefault(spec.key, [])
            if used[spec.key] == len(made):
                made.append(self._make(spec))
            taken.append(made[used[spec.key]])
            used[spec.key] += 1
        return taken

    def play(self, envs: Sequence[TurnEnv], policy: Policy, starts: Sequence[Start]) -> list[Trajectory]:
        """`rollout.play` in environments of this pool, as the configuration says; those that fail are replaced."""
        penalties = Penalties(self._args.cut_penalty, self._args.env_failure_penalty)
        length, window = self._args.max_completion_length, self._args.window_turns
        return play(envs, policy, starts, length, self._stepper, penalties, self.replace, window)

    def replace(self, failed: TurnEnv, failure: Failure) -> AgentTurns:
        """Make a new environment in the place of one that failed, and hand it out from now on.

        One that crashed is closed, by a thread of its own because nobody knows how long that takes now. One that hangs
        is not: another thread is still inside.

        Args:
            failed: One that `take` returned.
            failure: What happened to it.

        Raises:
            EnvSpecError: If a function does not make a new environment.
            ValueError: If ``failed`` is none of this pool's.
        """
        for key, made in self._made.items():
            for index, turns in enumerate(made):
                if turns is failed:
                    made[index] = self._make(EnvSpec(key[0], json.loads(key[1])))  # if it can be, else all stays
                    if failure.error is not None:
                        threading.Thread(target=_close, args=(turns,), daemon=True).start()
                    return made[index]
        raise ValueError(f"{failed} was not taken from this pool, so nobody knows how to make another one")

    def close(self) -> None:
        """Close all environments. The pool can be used again; it makes new ones."""
        while self._made:
            _, made = self._made.popitem()
            for turns in made:
                turns.close()

    def _make(self, spec: EnvSpec) -> AgentTurns:
        turns = make_turns(spec.env, self._args, spec.kwargs)
        if any(turns.unwrapped is other.unwrapped for made in self._made.values() for other in made):
            raise EnvSpecError(
                f"the function {spec.label} returned an environment that it had returned before, but several are "
                "played at the same time; make a new one at every call"
            )
        if self._prefix is None:
            self._prefix = turns.reply_prefix
        if self._args.force_reply_prefix and turns.reply_prefix != self._prefix:
            raise EnvSpecError(
                f"replies to {spec.label} start with {turns.reply_prefix}, those to the other environments with "
                f"{self._prefix}, and one prefix is forced on all; make them alike, or set force_reply_prefix=False"
            )
        self._adapt(turns)
        return turns


def _close(turns: AgentTurns) -> None:
    try:
        turns.close()
    except Exception as error:  # it crashed before, which was recorded
        logger.info("an environment that had crashed could not be closed: %s", error)


def about_each(specs: Sequence[EnvSpec], args: StarPOConfig) -> list[dict[str, Any]]:
    """For a summary: each environment's ``env`` and ``env_kwargs``, and what it says of itself (``environment``)."""
    return [
        {
            "env": spec.label,
            "env_kwargs": dict(spec.kwargs),
            "environment": about(spec.env, args, spec.kwargs),
        }
        for spec in specs
    ]


def measure(trajectory: Trajectory) -> dict[str, float]:
    """What is averaged over trajectories, in training and in evaluation."""
    infos = [turn.info for turn in trajectory.turns]
    return {
        "success": float(trajectory.success),
        "return": trajectory.episode_return,
        "format_valid": sum(bool(info["format_is_valid"]) for info in infos) / len(infos),
        "action_valid": sum(bool(info["action_is_valid"]) for info in infos) / len(infos),
        "turns": float(len(infos)),
        "actions": float(sum(info["num_actions"] for info in infos)),
        "reply_tokens": float(trajectory.num_reply_tokens),
        "truncated": float(trajectory.truncated),
    }


def per_environment(
    names: Sequence[str], row_names: Sequence[str], rows: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Sums of what was measured, apart for each environment.

    Args:
        names: Names of all environments of the run; they fix the order of the result, in which the sums of another
            process stand, too, whichever environments it played. A name that comes twice counts once.
        row_names: Name of each trajectory's environment.
        rows: What was measured of each trajectory, at least one, all with the same keys in the same order.

    Returns:
        ``"Sokoban-v0/success"`` and so on: the sum over its trajectories, 0 where there is none; and
        ``"Sokoban-v0/episodes"``, their number. To be added over processes, then divided by `environment_means`.

    Raises:
        ValueError: If there is no row, a row has no name, or a name is not one of ``names``.
    """
    if not rows:
        raise ValueError("there are no rows, so nobody knows what was measured; pass at least one")
    unknown = set(row_names) - set(names)
    if unknown:
        raise ValueError(f"rows of {sorted(unknown)}, but the run's environments are {list(names)}; name all of them")
    measures = ("episodes", *rows[0])
    sums = {f"{name}/{measure}": 0.0 for name in names for measure in measures}
    for name, row in zip(row_names, rows, strict=True):
        sums[f"{name}/episodes"] += 1
        for measure, value in row.items():
            sums[f"{name}/{measure}"] += value
    return sums


def environment_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from the sums of `per_environment`, without environments that nobody played and without the counts."""
    means = {}
    for key, total in sums.items():
        name, _, measure = key.rpartition("/")
        episodes = sums[f"{name}/episodes"]
        if measure != "episodes" and episodes:
            means[key] = total / episodes
    return means
