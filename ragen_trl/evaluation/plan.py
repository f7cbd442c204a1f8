"""What an evaluation plays: its options, and how each policy plays each environment.

``cli/eval_plan.py`` makes a plan from the command line; ``comparison.py`` carries it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen_trl.config.play import MannerOptions, TaskOptions, option_names
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec

LIMITS = tuple(name for name in option_names(TaskOptions) if name != "env_kwargs")
"""Options of the task, beside ``env_kwargs``."""
MANNER = option_names(MannerOptions)
"""Options of how a model is spoken to, and what its own failures cost."""


@dataclass
class EvaluationArguments:
    """What is evaluated, on what, and how often."""

    env: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Gymnasium ids, with arguments as JSON if you like: 'ragen/Sokoban-v0:{\"num_boxes\": 2}'. "
            "Unset: the one that the model was trained in."
        },
    )
    suite: str | None = field(
        default=None,
        metadata={
            "help": "Instead of --env. 'sokoban': Sokoban, SokobanLarge, Sokoban in other symbols, FrozenLake; "
            "'bandit': Bandit, BanditRev."
        },
    )
    model: list[str] = field(
        default_factory=list, metadata={"help": "Folders or hub ids of causal LMs. Unset: random and oracle only."}
    )
    algo: str = field(
        default="starpo-s", metadata={"help": "Algorithm of a training file that --config reads; else unused."}
    )
    episodes: int = field(
        default=512,
        metadata={
            "help": "Held-out start states, at most 8000; of ToyShop its 256 prompts.",
            "aliases": ["--eval_episodes"],
        },
    )
    samples_per_start: int = field(
        default=1, metadata={"help": "Episodes from each start state; with several there is pass@k."}
    )
    eval_temperature: float = field(default=1.0, metadata={"help": "Sampling temperature; 0 is greedy."})
    side_by_side: int = field(
        default=128, metadata={"help": "Episodes played and saved at a time; fewer take less memory."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Delete an older evaluation in the output folder first."})


@dataclass
class ApiArguments:
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = field(default=None, metadata={"help": "Name of a model at an OpenAI-compatible server."})
    api_base: str | None = field(default=None, metadata={"help": "Its base URL; unset: OPENAI_BASE_URL."})
    api_cache: str | None = field(
        default=None, metadata={"help": "File that keeps its answers; unset: api_cache.sqlite in the output folder."}
    )
    api_concurrency: int = field(default=16, metadata={"help": "Requests at a time."})
    api_timeout: float = field(default=120.0, metadata={"help": "Seconds that an attempt waits for an answer."})
    api_retries: int = field(default=6, metadata={"help": "Repetitions of a request after 429, 5xx and timeouts."})
    api_leave_out: list[str] = field(
        default_factory=list, metadata={"help": "Fields that the server refuses, among seed, temperature, top_p."}
    )
    api_token_limit: str = field(
        default="max_tokens", metadata={"help": "'max_tokens', or 'max_completion_tokens' for reasoning models."}
    )
    api_prompt_price: float | None = field(default=None, metadata={"help": "Price of a million tokens sent."})
    api_completion_price: float | None = field(default=None, metadata={"help": "Price of a million tokens written."})


@dataclass(frozen=True)
class Task:
    """One environment of an evaluation.

    Attributes:
        name: Its name in tables; no two tasks have the same.
        spec: How the environment is made.
        args: The whole configuration under which each policy plays it, by the policy's name. The oracle plays with
            that of ``"random"``.
    """

    name: str
    spec: EnvSpec
    args: Mapping[str, StarPOConfig]

    def settings(self) -> dict[str, Any]:
        """What an episode depends on besides its policy and its seeds."""
        return {"env": self.spec.label, "env_kwargs": dict(self.spec.kwargs), **task_limits(self.args["random"])}


@dataclass(frozen=True)
class EvalPlan:
    """Everything that an evaluation needs to know.

    Attributes:
        run: What is evaluated.
        api: The model behind an API, if any.
        tasks: The environments, at least one.
        folder: Where the results go.
    """

    run: EvaluationArguments
    api: ApiArguments
    tasks: Sequence[Task]
    folder: Path

    @property
    def common(self) -> StarPOConfig:
        """The options that are the same for all: sampling, device, vLLM."""
        return self.tasks[0].args["random"]


def api_name(api: ApiArguments) -> str | None:
    """The name in tables of the model behind the API; ``None`` if there is none."""
    return None if api.api_model is None else f"{api.api_model} (API)"


def task_limits(args: StarPOConfig) -> dict[str, Any]:
    """The options of ``args`` that are the task's, beside ``env_kwargs``."""
    return {name: getattr(args, name) for name in LIMITS}
