"""What an evaluation plays: its options, and how each policy plays each environment.

``cli/eval_plan.py`` makes a plan from the command line; ``comparison.py`` carries it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_trl.config.play import MannerOptions, TaskOptions, option, option_names
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec

LIMITS = tuple(name for name in option_names(TaskOptions) if name != "env_kwargs")
"""Options of the task, beside ``env_kwargs``."""
MANNER = option_names(MannerOptions)
"""Options of how a model is spoken to, and what its own failures cost."""


@dataclass
class EvaluationArguments:
    """What is evaluated, on what, and how often."""

    env: list[str] = option(
        [],
        "Gymnasium ids, with arguments as JSON if you like: 'ragen/Sokoban-v0:{\"num_boxes\": 2}'. "
        "Unset: the one that the model was trained in.",
    )
    suite: str | None = option(
        None,
        "Instead of --env. 'sokoban': Sokoban, SokobanLarge, Sokoban in other symbols, FrozenLake; "
        "'bandit': Bandit, BanditRev.",
    )
    model: list[str] = option([], "Folders or hub ids of causal LMs. Unset: random and oracle only.")
    algo: str = option("starpo-s", "Algorithm of a training file that --config reads; else unused.")
    episodes: int = option(
        512, "Held-out start states, at most 8000; of ToyShop its 256 prompts.", aliases=["--eval_episodes"]
    )
    samples_per_start: int = option(1, "Episodes from each start state; with several there is pass@k.")
    eval_temperature: float = option(1.0, "Sampling temperature; 0 is greedy.")
    side_by_side: int = option(128, "Episodes played and saved at a time; fewer take less memory.")
    overwrite: bool = option(False, "Delete an older evaluation in the output folder first.")


@dataclass
class ApiArguments:
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = option(None, "Name of a model at an OpenAI-compatible server.")
    api_base: str | None = option(None, "Its base URL; unset: OPENAI_BASE_URL.")
    api_cache: str | None = option(None, "File that keeps its answers; unset: api_cache.sqlite in the output folder.")
    api_concurrency: int = option(16, "Requests at a time.")
    api_timeout: float = option(120.0, "Seconds that an attempt waits for an answer.")
    api_retries: int = option(6, "Repetitions of a request after 429, 5xx and timeouts.")
    api_leave_out: list[str] = option([], "Fields that the server refuses, among seed, temperature, top_p.")
    api_token_limit: str = option("max_tokens", "'max_tokens', or 'max_completion_tokens' for reasoning models.")
    api_prompt_price: float | None = option(None, "Price of a million tokens sent.")
    api_completion_price: float | None = option(None, "Price of a million tokens written.")


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
