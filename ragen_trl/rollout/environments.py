"""Make the environments that a configuration describes and the chat in which they are played, and record both."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from ragen_envs import AgentTurns, TextEnv, ToolEnv, ToolTurns
from ragen_trl.config.options import LIMITS, MANNER, TokenOptions, option_names
from ragen_trl.errors import OptionError
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_specs import EnvMaker, EnvSpec, env_specs
from ragen_trl.system.atomic import write_atomically
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ragen_trl.config.starpo import StarPOConfig

logger = logging.getLogger(__name__)

_OPTIONS = ("env", "env_kwargs", *LIMITS, *MANNER)
"""What ``play.json`` records: where a model plays and how."""
_READ = (*option_names(TokenOptions), "think", "system_prompt", "force_reply_prefix")
"""Options that decide what a model reads and how its replies are read."""


def make_turns(env: str | EnvMaker, args: "StarPOConfig", kwargs: Mapping[str, Any] | None = None) -> AgentTurns:
    """Make an environment that takes whole replies.

    Args:
        env: A Gymnasium id, or a function that makes an environment. Unless it is an ``AgentTurns`` already, it is
            wrapped in one, with the limits of ``args``; one with tools in ``ToolTurns``.
        args: Turn limits, penalty and reply format.
        kwargs: Keyword arguments for the id instead of ``args.env_kwargs``, for a run with several environments.

    Raises:
        gymnasium.error.NameNotFound: If the id is unknown.
        OptionError: If ``env`` is a function and there are keyword arguments, or ``observation`` is not for ``env``.
    """
    if kwargs is None:
        kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    spec, sees = EnvSpec(env, kwargs), args.observation == "image"
    if isinstance(spec.env, str):
        seen = {"render_mode": "rgb_array"} if sees else {}
        made = gymnasium.make(spec.env, disable_env_checker=True, **{**seen, **kwargs})
    else:
        made = spec.env()
    if isinstance(made, AgentTurns):
        if made.observation != args.observation:
            raise OptionError(
                f"observation is {args.observation!r}, but env makes an AgentTurns with {made.observation!r}; give "
                "both the same"
            )
        return made
    limits: dict[str, Any] = {
        "max_turns": args.max_turns,
        "max_actions_per_turn": args.max_actions_per_turn,
        "max_actions": args.max_actions,
        "think": args.think,
        "format_penalty": args.format_penalty,
    }
    if not isinstance(made.unwrapped, ToolEnv):
        return AgentTurns(made, **limits, observation=args.observation, image_size=args.image_size)
    if sees:
        raise OptionError(f"observation is 'image', but {made.unwrapped} has tools, whose results are text; use 'text'")
    return ToolTurns(made, **limits)


def about(env: str | EnvMaker, args: "StarPOConfig", kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The environment's description of itself for a summary, `TextEnv.about`; empty if it has none."""
    turns = make_turns(env, args, kwargs)
    found = turns.unwrapped.about() if isinstance(turns.unwrapped, TextEnv) else {}
    turns.close()
    return found


def played_later(env: str | EnvMaker, args: "StarPOConfig") -> list[EnvSpec]:
    """Where a model plays that learns from demonstrations in ``env``: there, or where `TextEnv.learnt_for` says."""
    turns = make_turns(env, args)
    named = turns.unwrapped.learnt_for if isinstance(turns.unwrapped, TextEnv) else None
    turns.close()
    return [EnvSpec(*named)] if named else env_specs(env, args)


def make_chat(
    tokenizer: "PreTrainedTokenizerBase",
    turns: AgentTurns,
    args: "StarPOConfig",
    picture_text: Callable[[Picture], str] | None = None,
) -> Chat:
    """Make the chat in which a model plays: with the system prompt, forced reply prefix and variables of ``args``.

    Raises:
        ChatTemplateError: If the tokenizer's template is missing, rewrites history or lacks one of the variables.
    """
    variables = args.chat_template_kwargs
    return Chat(
        tokenizer,
        args.system_prompt,
        turns.reply_prefix if args.force_reply_prefix else "",
        think=turns.reply_format.think,
        template_kwargs=variables if isinstance(variables, dict) else None,
        calls=isinstance(turns, ToolTurns),
        picture_text=picture_text,
    )


def write_calls_as(chat: Chat, turns: AgentTurns) -> None:
    """Let an environment's demonstrated replies have the form of calls that the chat's model is used to."""
    if isinstance(turns, ToolTurns):
        turns.call_format = chat.call_format


def save_play_options(folder: Path, specs: Sequence[EnvSpec], args: "StarPOConfig") -> None:
    """Write ``play.json`` beside a saved model: the environment if it is one with an id, and how the model plays.

    With other values a trained model meets prompts that it has never seen.
    """
    options = {name: getattr(args, name) for name in (*LIMITS, *MANNER)}
    if len(specs) == 1 and isinstance(specs[0].env, str):
        options = {"env": specs[0].env, "env_kwargs": dict(specs[0].kwargs) or None, **options}
    write_atomically(folder / "play.json", json.dumps(options, indent=2))


def load_play_options(model: str | None) -> dict[str, Any]:
    """Read what ``save_play_options`` wrote for a model; empty for a model that was not trained here.

    Only options of play are read: a stranger's model must not say where a run is written or what is pushed.
    `OptionError` if the file cannot be read.
    """
    path = Path(model or "").expanduser() / "play.json"
    if model is None or not path.is_file():
        return {}
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise OptionError(f"{path} cannot be read ({error}); delete it and pass the options") from error
    return {name: found[name] for name in _OPTIONS if name in found}


def check_modules(model: str | None, recorded: Mapping[str, Any], env: str | None, context: str | None) -> None:
    """Raise `OptionError` if ``play.json`` names a module to import that the user did not name."""
    for option, given in {"env": env, "context": context}.items():
        found = str(recorded.get(option))
        if given is None and ":" in found:
            raise OptionError(
                f"{model}/play.json names {option} {found!r}, and code runs only if you name it yourself: add "
                f"--{option} {found} if you trust it"
            )


def unlike_recorded(model: str | None, specs: Sequence[EnvSpec], args: "StarPOConfig") -> str:
    """What a model's ``play.json`` says otherwise than ``args`` of what the model reads in these environments.

    Example:
        ``"think is True, and was False; max_turns is 5, and was 4"``
    """
    recorded = load_play_options(model)
    own = len(specs) == 1 and specs[0].env == recorded.get("env")
    names = [name for name in (*_READ, *(LIMITS if own else ())) if name in recorded and name != "format_penalty"]
    unlike = [name for name in names if recorded[name] != getattr(args, name)]
    return "; ".join(f"{name} is {getattr(args, name)!r}, and was {recorded[name]!r}" for name in unlike)
