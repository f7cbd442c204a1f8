"""The environments that a configuration describes: as data, made, shared by rollouts, and recorded beside a model."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from ragen_envs import AgentTurns, TextEnv, ToolEnv, ToolTurns, TrlTask
from ragen_trl.config.options import (
    LIMITS,
    MANNER,
    ModelArguments,
    PlayOptions,
    check_options,
    json_object,
)
from ragen_trl.errors import OptionError
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.contexts import context_rule
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.interfaces import Policy, Start, TurnEnv
from ragen_trl.rollout.loop import PATIENCE, play
from ragen_trl.system.atomic import read_json, reading, write_atomically
from ragen_trl.trajectory import Picture, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ragen_trl.config.starpo import StarPOConfig

EnvMaker = Callable[[], gymnasium.Env[str, str]]

_OPTIONS = ("env", "env_kwargs", *LIMITS, *MANNER)
"""What ``play.json`` records: where a model plays and how."""
_SHARED = ("max_turns", "max_actions_per_turn", "max_actions", "format_penalty", "success_return")
"""Options that are arguments of ``AgentTurns`` and ``ToolTurns`` alike."""


@dataclass(frozen=True)
class EnvSpec:
    """One kind of environment of a run.

    Attributes:
        env: A Gymnasium id, or a function without arguments that makes a new environment.
        kwargs: Keyword arguments of ``gymnasium.make`` that JSON can hold; empty for a function.

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


EnvLike = str | EnvMaker | EnvSpec


def env_specs(envs: EnvLike | Sequence[EnvLike], args: "StarPOConfig") -> list[EnvSpec]:
    """The environments of a run; ``args.env_kwargs`` belong to a single id."""
    listed = list(envs) if isinstance(envs, Sequence) and not isinstance(envs, str) else [envs]
    kwargs = json_object("env_kwargs", args.env_kwargs)
    if not listed:
        raise OptionError("the list of environments is empty; name at least one")
    if len(listed) > 1 and (args.instruction or args.actions):
        raise OptionError(
            f"instruction is {args.instruction!r} and actions {args.actions!r}, which are for a single environment; "
            "with several, write the docstring of each"
        )
    if kwargs and (len(listed) > 1 or isinstance(listed[0], EnvSpec)):
        raise OptionError(
            f"env_kwargs is {kwargs}, which is for a single id; with several environments or a spec, give each its "
            "own: env=[EnvSpec(id, kwargs), …]"
        )
    return [env if isinstance(env, EnvSpec) else EnvSpec(env, kwargs) for env in listed]


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


def make_turns(env: str | EnvMaker, args: "StarPOConfig", kwargs: Mapping[str, Any] | None = None) -> AgentTurns:
    """Make an environment that takes whole replies.

    Args:
        env: A Gymnasium id, a function that makes an environment, or a class for TRL's ``environment_factory``. Unless
            it is an ``AgentTurns`` already, it is wrapped in one, with the limits of ``args``; one with tools in
            ``ToolTurns``.
        args: Turn limits, penalty and reply format.
        kwargs: Keyword arguments for the id instead of ``args.env_kwargs``, for a run with several environments.

    Raises:
        OptionError: If ``env`` is a function and there are keyword arguments, or makes an ``AgentTurns`` with other
            limits than ``args``, or ``observation`` is not for ``env``.
    """
    if kwargs is None:
        kwargs = json_object("env_kwargs", args.env_kwargs)
    spec, sees = EnvSpec(env, kwargs), args.observation == "image"
    if isinstance(spec.env, str):
        seen = {"render_mode": "rgb_array"} if sees else {}
        made = gymnasium.make(spec.env, disable_env_checker=True, **{**seen, **kwargs})
    else:
        made = spec.env()
        if not isinstance(made, gymnasium.Env):  # of a class for TRL's `environment_factory`
            made = TrlTask(made)
    if isinstance(made, AgentTurns):
        own = {"think": made.reply_format.think, **{name: getattr(made, name) for name in (*_SHARED, "observation")}}
        for name, value in own.items():
            if value != (wanted := getattr(args, name)):
                raise OptionError(
                    f"{name} is {wanted!r} in args, but {spec.label} makes an AgentTurns with {value!r}; give both the "
                    "same, or let it return the environment without AgentTurns"
                )
        return made
    limits: dict[str, Any] = {name: getattr(args, name) for name in ("think", *_SHARED)}
    if not isinstance(made.unwrapped, ToolEnv):
        limits |= {name: getattr(args, name) for name in ("instruction", "actions", "observation", "image_size")}
        return AgentTurns(made, **limits)
    if sees:
        raise OptionError(f"observation is 'image', but {made.unwrapped} has tools, whose results are text; use 'text'")
    return ToolTurns(made, **limits)


def about(env: str | EnvMaker, args: "StarPOConfig", kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The environment's description of itself for a summary, `TextEnv.about`; empty if it has none."""
    with closing(make_turns(env, args, kwargs)) as turns:
        return turns.unwrapped.about() if isinstance(turns.unwrapped, TextEnv) else {}


def played_later(env: str | EnvMaker, args: "StarPOConfig") -> list[EnvSpec]:
    """Where a model plays that learns from demonstrations in ``env``: there, or where `TextEnv.learnt_for` says."""
    with closing(make_turns(env, args)) as turns:
        named = turns.unwrapped.learnt_for if isinstance(turns.unwrapped, TextEnv) else None
    return [EnvSpec(*named)] if named else env_specs(env, args)


def make_chat(
    tokenizer: "PreTrainedTokenizerBase",
    turns: AgentTurns,
    args: "StarPOConfig",
    picture_text: Callable[[Picture], str] | None = None,
) -> Chat:
    """Make the chat in which a model plays: with the system prompt, forced reply prefix and variables of ``args``."""
    return Chat(
        tokenizer,
        args.system_prompt,
        turns.reply_prefix if args.force_reply_prefix else "",
        think=turns.reply_format.think,
        template_kwargs=json_object("chat_template_kwargs", args.chat_template_kwargs),
        calls=isinstance(turns, ToolTurns),
        picture_text=picture_text,
    )


class EnvPool:
    """Environments that are made once, since a store is slow to start, and played again in every rollout.

    Args:
        args: Turn limits, penalties and reply format of all environments, and how they are stepped.
        adapt: Called with each environment that is made.
    """

    def __init__(self, args: "StarPOConfig", adapt: Callable[[AgentTurns], None] = lambda turns: None) -> None:
        self._args, self._adapt = args, adapt
        self._executor = EnvExecutor(args.env_workers, args.env_timeout)
        self._made: dict[tuple[str | EnvMaker, str], list[AgentTurns]] = {}
        self._hung: list[AgentTurns] = []
        self._patience = PATIENCE  # until episodes were played: at first it is mostly the environment that is wrong

    def take(self, specs: Sequence[EnvSpec]) -> list[AgentTurns]:
        """One environment per row, in order; all may be played side by side.

        Equal rows get different instances. The next call returns the same ones again, but for those that hang.
        """
        used: Counter[tuple[str | EnvMaker, str]] = Counter()
        taken = []
        for spec in specs:
            made, place = self._made.setdefault(spec.key, []), used[spec.key]
            if place == len(made):
                made.append(self._make(spec))
            elif made[place] in self._hung:
                made[place] = self._make(spec)
            taken.append(made[place])
            used[spec.key] += 1
        return taken

    def play(self, envs: Sequence[TurnEnv], policy: Policy, starts: Sequence[Start]) -> list[Trajectory]:
        """`loop.play` in environments of this pool, with the configuration's options. Those that fail are replaced.

        After Ctrl-C the pool makes new ones: threads that were abandoned may still be inside the old ones.
        """
        args = self._args
        try:
            played = play(
                envs,
                policy,
                starts,
                max_length=args.max_completion_length,
                executor=self._executor,
                cut_penalty=args.cut_penalty,
                renew=self.replace,
                rule=context_rule(args),
                batch_size=args.rollout_batch_size,
                patience=self._patience,
            )
            self._patience = args.env_patience
            return played
        except BaseException as error:
            if not isinstance(error, Exception):
                self._made.clear()  # and none is closed, as where a thread hangs
            raise

    def replace(self, failed: TurnEnv, failure: Failure) -> AgentTurns:
        """Make a new environment instead of one that failed, and hand it out from now on.

        An environment that crashed stays if no other can be made; otherwise it is closed. One that hangs is never
        handed out again and not closed: a thread is still inside it.
        """
        (env, kwargs), made = next(one for one in self._made.items() if failed in one[1])
        place = [turns is failed for turns in made].index(True)
        if failure.error is None:
            self._hung.append(made[place])
        new = self._make(EnvSpec(env, json.loads(kwargs)))
        if failure.error is not None:
            self._executor.run([made[place].close])
        made[place] = new
        return new

    def close(self) -> None:
        """Close all environments but those that hang. The pool can be used again."""
        self._executor.run([turns.close for turns in self._all() if turns not in self._hung])
        self._made.clear()

    def _all(self) -> list[AgentTurns]:
        return [turns for of_key in self._made.values() for turns in of_key]

    def _make(self, spec: EnvSpec) -> AgentTurns:
        turns, others = make_turns(spec.env, self._args, spec.kwargs), self._all()
        if any(turns.unwrapped is other.unwrapped for other in others):
            raise OptionError(
                f"the function {spec.label} returned an environment that it had returned before, but several are "
                "played at the same time; make a new one in every call"
            )
        if self._args.force_reply_prefix and any(turns.reply_prefix != other.reply_prefix for other in others):
            raise OptionError(
                f"replies to {spec.label} start with {turns.reply_prefix}, and replies to the other environments with "
                f"{others[0].reply_prefix}, but the same prefix is forced on all; make them equal, or set "
                "force_reply_prefix=False"
            )
        self._adapt(turns)
        return turns


def save_play_options(folder: Path, specs: Sequence[EnvSpec], args: "StarPOConfig") -> None:
    """Write ``play.json`` beside a saved model: the environment if it is one with an id, and how the model plays.

    With other values a trained model meets prompts that it has never seen.
    """
    options = {name: getattr(args, name) for name in (*LIMITS, *MANNER)}
    if len(specs) == 1 and isinstance(specs[0].env, str):
        options = {"env": specs[0].env, "env_kwargs": dict(specs[0].kwargs) or None, **options}
    write_atomically(folder / "play.json", json.dumps(options, indent=2))


def load_play_options(model: str | None, named: Container[str] = ()) -> dict[str, Any]:
    """Read what ``save_play_options`` wrote for a model; empty for a model that was not trained here.

    Only options of play are read: a stranger's model must not say where a run is written or what is pushed. Raises
    `OptionError`, with the file's name, for a value that its option cannot have, and if it names a module to import or
    what an environment may open, by an option that the user has not ``named``.
    """
    path = Path(model or "").expanduser() / "play.json"
    if model is None or not path.exists():
        return {}
    remedy = "delete it and pass the options"
    read = read_json(path, dict, remedy)
    with reading(path, remedy):
        found = {name: read[name] for name in _OPTIONS if name in read}
        ModelArguments(env=found.get("env", ModelArguments.env))
        check_options(played := PlayOptions(**{name: found[name] for name in found if name != "env"}))
        found |= {name: getattr(played, name) for name in found if name != "env"}
        asked = {option: found[option] for option in ("env", "context") if ":" in str(found.get(option))}
        if _opens(str(found.get("env")), json_object("env_kwargs", played.env_kwargs)):
            asked["env_kwargs"] = json.dumps(found["env_kwargs"])
    for option, value in asked.items():
        if option not in named:
            raise OptionError(
                f"{path} names {option} {value!r}, and code runs, files are read and addresses called only if you name "
                f"them yourself: add --{option} {shlex.quote(value)} if you trust it"
            )
    return found


def _opens(env: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether an argument may name a file, an address or a program: a text that is no `TextEnv.plain_arguments`."""
    entry = None if ":" in env else getattr(gymnasium.registry.get(env), "entry_point", None)
    kind = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    others = [value for name, value in kwargs.items() if name not in getattr(kind, "plain_arguments", ())]
    return '"' in json.dumps(others)  # texts, and objects with their keys
