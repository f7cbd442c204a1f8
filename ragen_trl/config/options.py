"""Every option that this package adds, declared once: name, type, default, range and help.

No torch, so ``--help`` is quick. The configurations that are made of these classes, and of TRL's, are in `starpo.py`.
"""

import inspect
import json
import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from os import PathLike
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from ragen_trl.errors import OptionError

CRITIC_ADVANTAGES = ("gae", "turn_gae", "bi_level_gae")
"""The advantages whose baseline is a critic: StarPO's PPO form."""

DEFAULT_WORKERS = 128
"""Most threads that step waiting environments at the same time."""


def option(default: Any, text: str, within: str = "") -> Any:
    """A field of a class of options.

    Args:
        default: The default; of a list each object gets a copy.
        text: The help.
        within: The range of a number as an interval: "(0, 1]" is above 0 and up to 1. `check_options` reads it, and the
            help shows it after the option's name.
    """
    metadata = {"help": text, "metavar": within} if within else {"help": text}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_options(options: Any) -> None:
    """Raise `OptionError` for a value of another kind than its option has, or outside its range or its choices.

    ``None`` is taken where the type or the default is ``None``. The text of a JSON object becomes the object.
    """
    kinds: dict[str, Any] = {}
    for owner in reversed(type(options).__mro__):
        if owner.__module__.startswith("ragen_trl."):
            kinds |= inspect.get_annotations(owner)  # not the field's: a parser of Transformers changes types there
    for declared in fields(options):
        if declared.name not in kinds:
            continue
        name, value = declared.name, getattr(options, declared.name)
        kind = list(get_args(kinds[name])) if isinstance(kinds[name], UnionType) else [kinds[name]]
        if value is None and (type(None) in kind or declared.default is None):
            continue
        if get_origin(kind[0]) is Literal and value not in get_args(kind[0]):
            raise OptionError(f"{name} is {value!r}; choose one of {', '.join(get_args(kind[0]))}")
        if bool in kind and not isinstance(value, bool):
            raise OptionError(f"{name} is {value!r}; give True or False")
        # `context` may be the function itself.
        if kind[0] is str and not (isinstance(value, str | PathLike) or callable(value)):
            raise OptionError(f"{name} is {value!r}; give a text")
        if get_origin(kind[0]) is list and not isinstance(value, list | tuple):
            raise OptionError(f"{name} is {value!r}; give a list")
        if int in kind and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise OptionError(f"{name} is {value!r}; give a whole number")
        if dict[str, Any] in kind:
            setattr(options, name, json_object(name, value))
        if float in kind or "metavar" in declared.metadata:
            check_range(name, value, declared.metadata.get("metavar", "[-inf, inf]"))


def json_object(name: str, value: object) -> dict[str, Any]:
    """Keyword arguments from an option: a mapping, JSON text of one, or nothing; `OptionError` for something else."""
    try:
        found: Any = json.loads(value) if isinstance(value, str) else value or {}
        return {**found}
    except (ValueError, TypeError) as error:
        raise OptionError(f"{name} is {value!r}, which is no JSON object like '{{\"size\": 5}}' ({error})") from None


def check_range(name: str, value: Any, within: str) -> None:
    """Raise `OptionError` for what is no number, or outside an interval, which is written as in `option`."""
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise OptionError(f"{name} is {value!r}; give a number")
    low, high = map(float, within[1:-1].split(","))
    number = int(value) if isinstance(value, Integral) else float(value)  # which may be too large for a float
    if not (low < number < high or (value == low and within[0] == "[") or (value == high and within[-1] == "]")):
        raise OptionError(f"{name} is {value}; it must be in {within}")


def option_names(kind: type) -> tuple[str, ...]:
    """Names of a class's options, those that it inherits first."""
    return tuple(option.name for option in fields(kind))


class Checked:
    """A class of options whose values are checked when an object is made; `OptionError` if one cannot be."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass
class TaskOptions:
    """The task. All policies of one table of results play the same task."""

    env_kwargs: dict[str, Any] | str | None = option(None, "Arguments (JSON) of the environment.")
    max_turns: int = option(5, "Replies per trajectory.", "[1, 1e9]")
    max_actions_per_turn: int = option(5, "Actions executed per reply; more are dropped.", "[1, 1e9]")
    max_actions: int = option(10, "Actions per trajectory.", "[1, 1e9]")
    format_penalty: float = option(-0.1, "Reward of a turn with an unreadable reply or invalid action.", "(-inf, 0]")
    instruction: str | None = option(None, "The task in words; unset: the environment's own, or its docstring.")
    actions: list[str] | None = option(None, "Names of the valid actions; unset: the environment's own, or free text.")
    success_return: float | None = option(
        None, "Return from which an episode is a success; unset: what the environment reports in its info."
    )


@dataclass
class TokenOptions:
    """Options that need the tokens of the policy; a model that is reached over an API cannot honour them."""

    window_turns: int | None = option(None, "Most turns, the present one included, that the model sees.", "[1, inf)")
    context: str | None = option(
        None, "Instead of that: a function 'module:name' that writes what the model reads, or 'actions_so_far'."
    )
    observation: Literal["text", "image"] = option(
        "text", "What a message shows: 'text', or 'image' for a picture of the state, which needs a vision model."
    )
    image_size: int = option(168, "Side in pixels to which pictures are scaled down.", "[28, 1e4]")
    chat_template_kwargs: dict[str, Any] | str | None = option(
        None, "Variables (JSON) of the chat template, such as '{\"enable_thinking\": false}' for Qwen3."
    )


@dataclass
class MannerOptions(TokenOptions):
    """How a model is prompted and what failures cost. These options are saved with a model."""

    think: bool = option(True, "Ask for <think>…</think> before <answer>…</answer>.")
    stop_at_answer: bool = option(
        True, "End a reply at its first </answer>: text behind it is not played, and would be trained on."
    )
    max_reply_length: int = option(400, "Tokens sampled per reply.", "[1, 1e9]")
    max_completion_length: int | None = option(3600, "Tokens of a trajectory after its first prompt.", "[1, 1e9]")
    system_prompt: str | None = option(None, "System message; unset: the chat template's, if any.")
    force_reply_prefix: bool = option(True, "Start every reply with <think> or <answer>, which is not trained.")
    cut_penalty: float = option(0.0, "Reward added to a turn whose reply a token limit cut.", "(-inf, 0]")


@dataclass
class ExecutionOptions:
    """How a rollout is executed. These options change no result."""

    env_workers: int = option(DEFAULT_WORKERS, "Most threads that step environments; 0: the main one.", "[0, inf)")
    env_timeout: float | None = option(None, "Seconds a step or reset may take, with env_workers.", "(0, 9e9]")
    env_patience: float = option(60.0, "Seconds to wait for a server that is away in a run, at least 5.", "[5, inf)")
    rollout_batch_size: int | None = option(
        None, "Trajectories that a process plays at the same time, which bounds memory; unset: all.", "[1, inf)"
    )


@dataclass
class PlayOptions(ExecutionOptions, MannerOptions, TaskOptions):
    """All options that an episode depends on, except policy and seeds; `StarPOConfig` inherits these fields."""


LIMITS = tuple(name for name in option_names(TaskOptions) if name != "env_kwargs")
"""Options of the task, beside ``env_kwargs``."""
MANNER = option_names(MannerOptions)
"""Options of how a model is spoken to, and what its own failures cost."""


@dataclass
class CriticOptions:
    """How the critic learns and where its values are used. Only an ``advantage`` with a critic reads them."""

    whiten_advantages: bool = option(True, "Give the advantages of a critic mean 0 and std 1 over the trained tokens.")
    bootstrap: Literal["unseen", "all", "none"] = option(
        "unseen",
        "Truncated episodes that end with the critic's value instead of 0: those whose limit the model was not told "
        "of ('unseen'), 'all' or 'none'.",
    )
    critic_learning_rate: float = option(1e-5, "Learning rate of the critic.", "(0, inf)")
    critic_batch_size: int | None = option(
        None, "Trajectories per step of the critic, all processes together; unset: as the policy.", "[1, inf)"
    )
    critic_epochs: int | None = option(None, "Passes of the critic over a rollout; unset: num_iterations.", "[1, inf)")
    critic_warmup_steps: int = option(0, "First updates, in which only the critic learns.", "[0, inf)")
    value_clip: float | None = option(0.5, "How far a value may move before it is clipped; unset: free.", "(0, inf)")


@dataclass
class TrainingOptions:
    """How a policy learns: what `StarPOConfig` adds to TRL's ``GRPOConfig``, and TRL's options with other defaults."""

    loss_type: Literal["grpo", "dapo", "dr_grpo", "cispo"] = option(
        "grpo", "'grpo' is StarPO's: mean over trajectories of the token mean; the others are TRL's."
    )
    bf16: bool | None = option(None, "Mixed precision in bfloat16; unset: on where the hardware has it.")
    dataloader_pin_memory: bool | None = option(None, "As in transformers; unset: where there is a GPU.")
    per_device_train_batch_size: int = option(4, "Trajectories per forward pass and process.", "[1, inf)")
    gradient_accumulation_steps: int = option(
        None, "Micro-batches per update; unset: 32, with a critic and no filter 8: four updates a rollout.", "[1, inf)"
    )
    steps_per_generation: int | None = option(
        None, "Micro-batches of a rollout; unset: those of one update, or of four, see there.", "[1, inf)"
    )
    max_steps: int = option(None, "Updates; unset, and without num_train_epochs: those of 200 rollouts.")
    num_train_epochs: float = option(None, "Passes over num_train_seeds start states, or a train_dataset.")
    save_steps: float = option(480, "Updates between checkpoints, each at the end of a rollout.")
    lr_scheduler_type: str = option("constant", "Learning-rate schedule.")
    num_generations_eval: int | None = option(1, "Trajectories per start state in eval_strategy.", "[1, inf)")
    num_generations: int | None = option(
        16, "Trajectories per start state (group size), at least 2; with a critic 1 is enough.", "[1, inf)"
    )
    beta: float = option(0.001, "KL coefficient (TRL's k3 term in the loss); 0 loads no reference model.", "[0, inf)")
    log_kl: bool = option(False, "With beta 0: log the KL (k3) to the policy as it was, for one more forward pass.")
    entropy_coef: float = option(0.001, "Weight of the mean entropy over sampled tokens (nats).", "[0, inf)")
    delta: float | None = option(3.0, "Dual clip: bound of the ratio where the advantage is negative.", "(1, inf)")
    vllm_importance_sampling_mode: Literal["token_truncate", "token_mask"] = option(
        "token_truncate", "Correction for what vLLM computes differently; TRL's own default drops trajectories."
    )
    disable_dropout: bool = option(True, "Always on: replies are scored in the network that sampled them.")
    sampler_check: Literal["stop", "warn"] = option(
        "stop",
        "If trainer and sampler disagree on the first rollout; 'warn' for a rollout hook that plays another policy.",
    )
    merge_lora: bool = option(False, "Sample with LoRA merged into the weights: faster, and rounded otherwise.")
    num_train_seeds: int | None = option(
        None, "Different start states to train on; unset: a new one for every group of the run.", "[1, inf)"
    )
    num_eval_seeds: int = option(64, "Start states of eval_strategy.", "[1, inf)")
    train_seed_start: int = option(10_000, "Seed of the first training start state; evaluation uses those below.")
    advantage: Literal["group", "gae", "turn_gae", "bi_level_gae", "gigpo", "mt_grpo"] = option(
        "group", "Advantage estimator; 'gae', 'turn_gae' and 'bi_level_gae' train a critic: the PPO form."
    )
    baseline: Literal["mean", "leave_one_out"] = option(
        "mean", "Baseline of the group advantage; scale_rewards (TRL) sets the divisor."
    )
    gamma: float = option(1.0, "Discount per sampled token ('gae', 'bi_level_gae').", "[0, 1]")
    gae_lambda: float = option(1.0, "λ of generalised advantage estimation over tokens.", "[0, 1]")
    turn_gamma: float = option(0.95, "Discount per turn ('turn_gae', 'bi_level_gae', 'gigpo').", "[0, 1]")
    turn_lambda: float = option(1.0, "λ of generalised advantage estimation over turns ('turn_gae').", "[0, 1]")
    step_weight: float = option(1.0, "Weight of the turn's part ('gigpo'), of the last turn ('mt_grpo').", "[0, inf)")
    filter_ratio: float = option(1.0, "Share to train on, of the groups ('top_k') or of the spread.", "(0, 1]")
    filter_strategy: Literal["top_k", "top_p", "top_p_variance"] = option(
        "top_k",
        "Groups with the largest std of raw returns: that share of them (StarPO-S), or the fewest with that share of "
        "all stds ('top_p', RAGEN-2's code) or variances ('top_p_variance', its paper).",
    )
    max_refills: int = option(0, "Most extra rollouts to complete the groups to train on.", "[0, inf)")
    oracle_coef: float = option(
        0.0,
        "Weight of imitating what the oracle would have replied at a turn of each episode, also of groups that the "
        "filter drops; falls to 0 over the run. Adds a row for each episode to an update.",
        "[0, inf)",
    )
    oracle_actions_per_turn: int = option(2, "Actions of the oracle's reply (oracle_coef).", "[1, inf)")
    env_weights: list[float] | None = option(None, "How often each of several environments is played.")
    record_rollouts: int = option(20, "Rollouts that the report's viewer can show.", "[0, inf)")


@dataclass
class AStarPOOptions:
    r"""What only A\*-PO reads. β₁, β₂ and the standard error are in units of the return range."""

    reference_samples: int = option(8, "Episodes of the reference from each start state (N).", "[1, inf)")
    max_reference_samples: int = option(32, "Most episodes from a start state whose V* stays uncertain.", "[1, inf)")
    value_std_error: float = option(0.15, "Standard error of V* that is good enough.", "(0, inf)")
    beta1: float = option(0.5, "Temperature of V*; near 0: best return, large: mean return.", "(0, inf)")
    beta2: float = option(1e-3, "Weight of the log-ratio to the reference, per nat.", "(0, inf)")
    return_range: float | None = option(None, "Largest minus smallest return; unset: measured.", "(0, inf)")
    loss_scale: Literal["unit", "paper"] = option(
        "unit", "'unit': the gradient has the scale of REINFORCE; 'paper': times 2·beta2."
    )
    kl_coef: float = option(0.0, "Weight of the KL to the reference per token (k3), on the unit scale.", "[0, inf)")
    refresh_steps: int = option(0, "Updates after which the policy becomes the reference; 0: never.", "[0, inf)")
    reward_version: str = option("", "Part of the cache's key; change it when rewards change.")
    value_cache: str | None = option(None, "SQLite file of the reference's returns, shared by runs.")


@dataclass
class WarmStartConfig(Checked):
    """How demonstrations are played and learned; `OptionError` if a value is out of its range."""

    demonstrations: int = option(36_000, "Episodes to learn from: of the oracle, in a shop of a shopper.", "[1, inf)")
    noise: float = option(0.5, "Probability that an action is a mistake: random, in a shop a shopper's.", "[0, 1]")
    demo_actions_per_turn: int = option(2, "Actions of a demonstrated reply.", "[1, inf)")
    demo_learning_rate: float = option(2e-3, "Learning rate of the supervised stage.", "(0, inf)")
    demo_batch_size: int = option(16, "Episodes per optimizer step.", "[1, inf)")
    demo_epochs: float = option(1.0, "Most passes over the demonstrations.", "(0, inf)")
    demo_rounds: int = option(
        0, "Rounds after the first, with as many episodes each: the model plays, the oracle corrects.", "[0, inf)"
    )
    demo_lora_r: int = option(0, "LoRA rank, merged into the weights at the end; 0: all weights.", "[0, inf)")


@dataclass
class ModelArguments(Checked):
    """Which model learns what, from its first steps in ``warm-start`` on."""

    env: str = option("ragen/FrozenLake-v0", "Gymnasium id of the environment.")
    algo: Literal["starpo", "starpo-s", "a-star-po"] = option("starpo-s", "The algorithm; see also --advantage.")
    model: str | None = option(None, "Folder or hub id of a causal LM; unset: the embedded Qwen2, warm-started first.")
    overwrite: bool = option(False, "Delete what an earlier command left in the output folder, and start again.")


@dataclass
class RunArguments(ModelArguments):
    """What a run does; how it trains is in the training configuration."""

    eval_episodes: int = option(512, "Held-out start states of each evaluation.", "[1, inf)")
    eval_temperature: float = option(1.0, "Sampling temperature of the evaluations.", "[0, inf)")
    eval_env_kwargs: dict[str, Any] | str | None = option(
        None, "Arguments (JSON) that replace some of env_kwargs in evaluations; unset: a held-out split, if any."
    )
    lora_r: int = option(0, "LoRA rank; 0 trains all weights.", "[0, inf)")
    lora_alpha: int = option(64, "LoRA scaling numerator.", "[1, inf)")
    monitor: Literal["warn", "stop", "rollback", "off"] = option(
        "warn", "What alerts of collapse do: 'warn', 'stop', 'rollback' to the best checkpoint, or 'off'."
    )


@dataclass
class EvaluationArguments(Checked):
    """What is evaluated, in which environment, and how often."""

    env: str | None = option(None, "Gymnasium id of the environment; unset: the one that the model was trained in.")
    model: list[str] = option([], "Folders or hub ids of causal LMs. Unset: random and oracle only.")
    episodes: int = option(512, "Held-out start states, at most 8000; of ToyShop its 256 prompts.", "[1, inf)")
    samples_per_start: int = option(1, "Episodes from each start state; with several there is pass@k.", "[1, inf)")
    eval_temperature: float = option(1.0, "Sampling temperature; 0 is greedy.", "[0, inf)")


@dataclass
class ApiArguments(Checked):
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = option(None, "Name of a model at an OpenAI-compatible server.")
    api_base: str | None = option(None, "Its base URL; unset: OPENAI_BASE_URL.")
    api_cache: str | None = option(None, "File that keeps its answers; unset: api_cache.sqlite in the output folder.")
    api_concurrency: int = option(16, "Requests at a time.", "[1, inf)")
    api_timeout: float = option(120.0, "Seconds that an attempt waits for an answer.", "(0, inf)")
    api_retries: int = option(6, "Repetitions of a request after 429, 5xx and timeouts.", "[0, inf)")
    api_leave_out: list[str] = option([], "Fields that the server refuses, among seed, temperature, top_p.")
    api_token_limit: Literal["max_tokens", "max_completion_tokens"] = option(
        "max_tokens", "The server's name for the limit of a reply; reasoning models have the second."
    )
