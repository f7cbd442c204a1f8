r"""How a model plays episodes: the options that decide what an episode is, each declared once.

A class for each kind of option. Whoever needs a list of options (a saved model's ``play.json``, the tables of an
evaluation, the key of A\*-PO's cache, the settings of a run, the help page) asks `option_names` for the kind it means.

Light on purpose: no torch, so that ``--help`` is quick. The metadata holds nothing but the help, because the argument
parser of Transformers hands all of it to argparse.
"""

from dataclasses import dataclass, field, fields
from typing import Any

DEFAULT_WORKERS = 128
"""Threads at most that step waiting environments side by side."""


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class TaskOptions:
    """What is played. All policies of one table play the same task."""

    env_kwargs: dict[str, Any] | str | None = _option(
        None, "Keyword arguments (JSON) of the environment, as for gymnasium.make."
    )
    max_turns: int = _option(5, "Replies per trajectory.")
    max_actions_per_turn: int = _option(5, "Actions executed per reply; more are dropped.")
    max_actions: int = _option(10, "Actions per trajectory.")
    format_penalty: float = _option(-0.1, "Reward of a turn whose reply cannot be read or holds an invalid action.")


@dataclass
class TokenOptions:
    """What only a policy can do whose tokens are at hand; a model behind an API cannot be asked for it."""

    window_turns: int | None = _option(
        None, "Turns that the model sees at most, the present one included; unset: all of them."
    )
    stop_at_answer: bool = _option(
        False, "A reply ends with its </answer>; the end of the turn is then added and not trained."
    )


@dataclass
class MannerOptions(TokenOptions):
    """How a model is prompted and what its own failures cost. These go with a model wherever it plays."""

    think: bool = _option(True, "Ask for <think>…</think> before <answer>…</answer>.")
    max_reply_length: int = _option(400, "Tokens sampled per reply.")
    max_completion_length: int | None = _option(
        3600, "Tokens a trajectory may have after its first prompt, all later turns included."
    )
    system_prompt: str | None = _option(None, "System message; unset leaves it to the chat template.")
    force_reply_prefix: bool = _option(
        True, "Start every reply with <think> (or <answer>), given and not trained, as RAGEN does."
    )
    cut_penalty: float = _option(0.0, "Reward added to a turn whose reply was cut by a limit of tokens.")
    env_failure_penalty: float = _option(
        -2.0, "Reward of a turn in which the environment crashed or took too long; its episode ends."
    )


@dataclass
class ExecutionOptions:
    """How environments are stepped. These change no result."""

    env_workers: int = _option(
        DEFAULT_WORKERS, "Threads at most that step waiting environments side by side; 0 steps all in the main one."
    )
    env_timeout: float | None = _option(None, "Seconds a step or reset of an environment may take; unset: no limit.")


@dataclass
class PlayOptions(ExecutionOptions, MannerOptions, TaskOptions):
    """All options that an episode depends on besides its policy and its seeds; `StarPOConfig` has these fields, too."""


def option_names(kind: type) -> tuple[str, ...]:
    """Names of a class's options, those that it inherits first."""
    return tuple(option.name for option in fields(kind))
