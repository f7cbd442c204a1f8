r"""How a model plays episodes: the options that decide what an episode is, each declared once.

Each kind of option has a class. Code that needs a list of options (a saved model's ``play.json``, the tables of an
evaluation, the key of A\*-PO's cache, the settings of a run, the help page) gets it from `option_names`.

This module does not import torch, so that ``--help`` is quick. The metadata holds only the help text, because the
argument parser of Transformers passes all of it to argparse.
"""

from dataclasses import dataclass, field, fields
from typing import Any

DEFAULT_WORKERS = 128
"""Most threads that step waiting environments at the same time."""


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class TaskOptions:
    """The task. All policies of one table of results play the same task."""

    env_kwargs: dict[str, Any] | str | None = _option(
        None, "Keyword arguments (JSON) of the environment, as for gymnasium.make."
    )
    max_turns: int = _option(5, "Replies per trajectory.")
    max_actions_per_turn: int = _option(5, "Actions executed per reply; more are dropped.")
    max_actions: int = _option(10, "Actions per trajectory.")
    format_penalty: float = _option(-0.1, "Reward of a turn whose reply cannot be read or holds an invalid action.")


@dataclass
class TokenOptions:
    """Options that need the tokens of the policy; a model that is reached over an API cannot honour them."""

    window_turns: int | None = _option(
        None, "Most turns that the model sees, the present one included; unset: all of them."
    )
    stop_at_answer: bool = _option(
        False, "End a reply at its </answer>; the end of the turn is then added and not trained."
    )


@dataclass
class MannerOptions(TokenOptions):
    """How a model is prompted and what failures cost. These options are saved with a model."""

    think: bool = _option(True, "Ask for <think>…</think> before <answer>…</answer>.")
    max_reply_length: int = _option(400, "Tokens sampled per reply.")
    max_completion_length: int | None = _option(
        3600, "Tokens a trajectory may have after its first prompt, all later turns included."
    )
    system_prompt: str | None = _option(None, "System message; unset leaves it to the chat template.")
    force_reply_prefix: bool = _option(
        True, "Start every reply with <think> (or <answer>), which is given and not trained, as in RAGEN."
    )
    cut_penalty: float = _option(0.0, "Reward added to a turn whose reply was cut by a token limit.")
    env_failure_penalty: float = _option(
        -2.0, "Reward of a turn in which the environment crashed or took too long; its episode ends."
    )


@dataclass
class ExecutionOptions:
    """How environments are stepped. These options change no result."""

    env_workers: int = _option(
        DEFAULT_WORKERS, "Most threads that step waiting environments at the same time; 0: step all in the main thread."
    )
    env_timeout: float | None = _option(None, "Seconds a step or reset of an environment may take; unset: no limit.")


@dataclass
class PlayOptions(ExecutionOptions, MannerOptions, TaskOptions):
    """All options that an episode depends on, except policy and seeds; `StarPOConfig` inherits these fields."""


def option_names(kind: type) -> tuple[str, ...]:
    """Names of a class's options, those that it inherits first."""
    return tuple(option.name for option in fields(kind))
