r"""How a model plays episodes: the options that decide what an episode is, each declared once.

Code that needs a list of options (``play.json``, the tables of an evaluation, A\*-PO's cache, the help page) gets it
from `option_names`. No torch, so ``--help`` is quick. The metadata holds only the help text and other names, because
the argument parser of Transformers passes all of it to argparse.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ragen_trl.errors import OptionError

DEFAULT_WORKERS = 128
"""Most threads that step waiting environments at the same time."""

LEAST_TEMPERATURE = 1e-30
"""Divided by less, logits would leave the range of float32."""


def check_sampling(top_p: float, top_k: int) -> None:
    """Raise `OptionError` for shares and numbers of tokens that nothing can be drawn from."""
    if not 0 < top_p <= 1:
        raise OptionError(f"top_p is {top_p}; it must be in (0, 1], 1 keeps all tokens")
    if top_k < 0:
        raise OptionError(f"top_k is {top_k}; use 0 to keep all tokens or a positive number")


def check_temperature(name: str, value: float) -> None:
    """Raise `OptionError` for a temperature, of this name, that is neither 0 nor one that logits can be divided by."""
    if value != 0 and not LEAST_TEMPERATURE <= value < math.inf:
        raise OptionError(
            f"{name} is {value}; use 0 for greedy sampling, or at least {LEAST_TEMPERATURE:g}, and a finite number"
        )


def option(default: Any, text: str, aliases: Sequence[str] = ()) -> Any:
    """A field of a dataclass of options: its default (of a list each object gets a copy), its help, and other names."""
    metadata = {"help": text, **({"aliases": list(aliases)} if aliases else {})}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class TaskOptions:
    """The task. All policies of one table of results play the same task."""

    env_kwargs: dict[str, Any] | str | None = option(
        None, "Keyword arguments (JSON) of the environment, as for gymnasium.make."
    )
    max_turns: int = option(5, "Replies per trajectory.")
    max_actions_per_turn: int = option(5, "Actions executed per reply; more are dropped.")
    max_actions: int = option(10, "Actions per trajectory.")
    format_penalty: float = option(-0.1, "Reward of a turn whose reply cannot be read or holds an invalid action.")


@dataclass
class TokenOptions:
    """Options that need the tokens of the policy; a model that is reached over an API cannot honour them."""

    window_turns: int | None = option(
        None, "Most turns that the model sees, the present one included; unset: all of them."
    )
    context: str | None = option(
        None, "Instead of that: a function 'module:name' that writes what the model reads, or 'actions_so_far'."
    )
    stop_at_answer: bool = option(
        False, "End a reply at its </answer>; the end of the turn is then added and not trained."
    )
    observation: str = option(
        "text", "What a message shows: 'text', or 'image' for a picture of the state, which needs a vision model."
    )
    image_size: int = option(168, "Side in pixels of the square to which these pictures are scaled down.")
    chat_template_kwargs: dict[str, Any] | str | None = option(
        None, "Variables (JSON) of the chat template, such as '{\"enable_thinking\": false}' for Qwen3."
    )


@dataclass
class MannerOptions(TokenOptions):
    """How a model is prompted and what failures cost. These options are saved with a model."""

    think: bool = option(True, "Ask for <think>…</think> before <answer>…</answer>.")
    max_reply_length: int = option(400, "Tokens sampled per reply.")
    max_completion_length: int | None = option(
        3600, "Tokens a trajectory may have after its first prompt, all later turns included."
    )
    system_prompt: str | None = option(None, "System message; '' is an empty one. Unset: the chat template's, if any.")
    force_reply_prefix: bool = option(
        True, "Start every reply with <think> (or <answer>), which is given and not trained, as in RAGEN."
    )
    cut_penalty: float = option(0.0, "Reward added to a turn whose reply was cut by a token limit.")
    env_failure_penalty: float = option(
        -2.0, "Reward of a turn in which the environment crashed or took too long; its episode ends."
    )


@dataclass
class ExecutionOptions:
    """How a rollout is executed. These options change no result."""

    env_workers: int = option(
        DEFAULT_WORKERS, "Most threads that step waiting environments at the same time; 0: step all in the main thread."
    )
    env_timeout: float | None = option(None, "Seconds a step or reset of an environment may take; unset: no limit.")
    rollout_batch_size: int | None = option(
        None, "Trajectories that a process plays at the same time; the others wait. Less memory, more time; unset: all."
    )


@dataclass
class PlayOptions(ExecutionOptions, MannerOptions, TaskOptions):
    """All options that an episode depends on, except policy and seeds; `StarPOConfig` inherits these fields."""


def option_names(kind: type) -> tuple[str, ...]:
    """Names of a class's options, those that it inherits first."""
    return tuple(option.name for option in fields(kind))


LIMITS = tuple(name for name in option_names(TaskOptions) if name != "env_kwargs")
"""Options of the task, beside ``env_kwargs``."""
MANNER = option_names(MannerOptions)
"""Options of how a model is spoken to, and what its own failures cost."""
