"""The environments of a run: how each is named, the instances that rollouts share, and what is measured of an episode.

A run with one environment is a run with a list of one. Left out: opening and closing environments between rollouts,
because a store or a server for one is slow to start; and different turn limits or reply formats per environment,
because one chat serves all of them.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

from ragen_envs import AgentTurns
from ragen_trl.errors import UserError
from ragen_trl.rollout.contexts import context_named
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.environments import make_turns
from ragen_trl.rollout.interfaces import Penalties, Policy, Start, TurnEnv
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

logger = logging.getLogger(__name__)

EnvMaker = Callable[[], gymnasium.Env[str, str]]


class EnvSpecError(UserError, ValueError):
    """The description of an environment, or of a list of them, cannot be played."""


@dataclass(frozen=True)
class EnvSpec:
    """One kind of environment of a run.

    Attributes:
        env: A Gymnasium id, or a function without arguments that makes a new environment.
        kwargs: Keyword arguments of ``gymnasium.make`` that JSON can hold; empty for a function.

    Raises:
        EnvSpecError: If a function has keyword arguments, or JSON cannot hold them.

    Example:
        >>> EnvSpec("ragen/Sokoban-v0", {"dim_room": [5, 5]}).name
        'Sokoban-v0'
    """

    env: str | EnvMaker
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) and (isinstance(self.env, gymnasium.Env) or not callable(self.env)):
            raise EnvSpecError(
                f"env is {self.env!r}; pass a Gymnasium id, or a function that makes a new environment each time"
            )
        if not isinstance(self.env, str) and self.kwargs:
            raise EnvSpecError(f"env_kwargs is {self.kwargs}, but env is a function; set them inside the function")
        try:
            json.dumps(self.kwargs)
        except (TypeError, ValueError) as error:
            raise EnvSpecError(
                f"env_kwargs {self.kwargs!r} of {self.env} cannot be written as JSON ({error}); pass a function that "
                "makes the environment with them"
            ) from error

    @property
    def name(self) -> str:
        """The id without its namespace, or the function's name. `unique_names` tells equal names apart."""
        if isinstance(self.env, str):
            return self.env.rpartition("/")[2].rpartition(":")[2]
        maker: Any = self.env
        while isinstance(maker, partial):
            maker = maker.func
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
    """The environments of a run.

    Args:
        envs: One environment or a list of them: ids, functions, or specs with their own keyword arguments.
        args: Its ``env_kwargs`` belong to a single id.

    Raises:
        EnvSpecError: If the list is empty, names an environment twice, or ``env_kwargs`` could belong to several.
    """
    listed = list(envs) if isinstance(envs, Sequence) and not isinstance(envs, str) else [envs]
    kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    if not listed:
        raise EnvSpecError("the list of environments is empty; name at least one")
    if kwargs and (len(listed) > 1 or isinstance(listed[0], EnvSpec)):
        raise EnvSpecError(
            f"env_kwargs is {kwargs}, which is for a single id; with several environments or a spec, give each its "
            "own: env=[EnvSpec(id, kwargs), …]"
        )
    specs = [env if isinstance(env, EnvSpec) else EnvSpec(env, kwargs) for env in listed]
    counts = Counter(spec.key for spec in specs)
    for spec in specs:
        if counts[spec.key] > 1:
            raise EnvSpecError(
                f"{spec.label} with {dict(spec.kwargs)} is listed {counts[spec.key]} times; list it once, and set "
                "env_weights to play it more often"
            )
    return specs


def unique_names(specs: Sequence[EnvSpec]) -> list[str]:
    """Different names for metrics. Where names are equal, the keyword arguments that differ are added.

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


@dataclass
class _Made:
    """An environment of the pool, the spec that it was made from, and whether another thread hangs in it."""

    spec: EnvSpec
    turns: AgentTurns
    hangs: bool = False


class EnvPool:
    """Environments that are made once and played again in every rollout.

    Args:
        args: Turn limits, penalties and reply format of all environments, and how they are stepped.
        adapt: Called with each environment that is made.
    """

    def __init__(self, args: "StarPOConfig", adapt: Callable[[AgentTurns], None] = lambda turns: None) -> None:
        self._args, self._adapt = args, adapt
        self._executor = EnvExecutor(args.env_workers, args.env_timeout)
        self._made: dict[tuple[str | EnvMaker, str], list[_Made]] = {}
        self._prefix: str | None = None

    def take(self, specs: Sequence[EnvSpec]) -> list[AgentTurns]:
        """One environment per row, in order; all may be played side by side.

        Equal rows get different instances. The next call returns the same ones again; new ones are made only if more
        are needed than ever before, and instead of one that hangs and could not be replaced.

        Raises:
            EnvSpecError: If a function returns an environment that it returned before, or one whose replies start with
                another tag than the replies of the environments made before.
            gymnasium.error.NameNotFound: If an id is unknown.
        """
        used: Counter[tuple[str | EnvMaker, str]] = Counter()
        taken = []
        for spec in specs:
            made = self._made.setdefault(spec.key, [])
            place = used[spec.key]
            if place == len(made):
                made.append(_Made(spec, self._make(spec)))
            elif made[place].hangs:
                made[place] = _Made(spec, self._make(spec))
            taken.append(made[place].turns)
            used[spec.key] += 1
        return taken

    def play(self, envs: Sequence[TurnEnv], policy: Policy, starts: Sequence[Start]) -> list[Trajectory]:
        """`loop.play` in environments of this pool, with the configuration's options. Those that fail are replaced."""
        penalties = Penalties(self._args.cut_penalty, self._args.env_failure_penalty)
        length, window = self._args.max_completion_length, self._args.window_turns
        size, name = self._args.rollout_batch_size, self._args.context
        context = None if name is None else context_named(name)
        return play(envs, policy, starts, length, self._executor, penalties, self.replace, window, size, context)

    def replace(self, failed: TurnEnv, failure: Failure) -> AgentTurns:
        """Make a new environment instead of one that failed, and hand it out from now on.

        An environment that crashed stays if no other can be made. Otherwise it is closed, with threads in one of its
        own, because that may take any time. One that hangs is never handed out again, whether or not another can be
        made, and it is not closed: a thread is still inside it.

        Args:
            failed: An environment that `take` returned.
            failure: What happened to it.

        Raises:
            EnvSpecError: If a function does not make a new environment.
            ValueError: If ``failed`` does not belong to this pool.
        """
        for made in self._all():
            if made.turns is failed:
                made.hangs = failure.error is None
                new = self._make(made.spec)
                if not made.hangs and self._args.env_workers:
                    threading.Thread(target=_close, args=(made.turns,), daemon=True).start()
                elif not made.hangs:
                    _close(made.turns)  # it may have to stay in the thread that made it
                made.turns, made.hangs = new, False
                return new
        raise ValueError(f"{failed} was not taken from this pool, so the pool cannot make another one")

    def close(self) -> None:
        """Close all environments but those that hang. The pool can be used again; it makes new ones."""
        while self._made:
            _, of_key = self._made.popitem()
            for made in of_key:
                if not made.hangs:
                    made.turns.close()

    def _all(self) -> list[_Made]:
        return [made for of_key in self._made.values() for made in of_key]

    def _make(self, spec: EnvSpec) -> AgentTurns:
        turns = make_turns(spec.env, self._args, spec.kwargs)
        if any(turns.unwrapped is other.turns.unwrapped for other in self._all()):
            raise EnvSpecError(
                f"the function {spec.label} returned an environment that it had returned before, but several are "
                "played at the same time; make a new one in every call"
            )
        if self._prefix is None:
            self._prefix = turns.reply_prefix
        if self._args.force_reply_prefix and turns.reply_prefix != self._prefix:
            raise EnvSpecError(
                f"replies to {spec.label} start with {turns.reply_prefix}, those to the other environments with "
                f"{self._prefix}, but the same prefix is forced on all; make them equal, or set "
                "force_reply_prefix=False"
            )
        self._adapt(turns)
        return turns


def _close(turns: AgentTurns) -> None:
    try:
        turns.close()
    except Exception as error:  # its crash was recorded before
        logger.info("an environment that had crashed could not be closed: %s", error)


def measure(trajectory: Trajectory) -> dict[str, float]:
    """The numbers that are averaged over trajectories, in training and in evaluation."""
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
