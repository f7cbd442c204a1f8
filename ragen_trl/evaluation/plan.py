"""What an evaluation plays, and how each policy plays each environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_trl.config.options import LIMITS, ApiArguments, EvaluationArguments
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec


@dataclass(frozen=True)
class Task:
    """One environment of an evaluation.

    Attributes:
        name: Its name in tables; no two tasks have the same.
        spec: How the environment is made.
        args: The whole configuration under which each policy plays it, by the policy's name.
    """

    name: str
    spec: EnvSpec
    args: Mapping[str, StarPOConfig]

    def args_of(self, policy: str) -> StarPOConfig:
        """The configuration under which a policy plays it."""
        return self.args.get(policy, self.args["random"])

    def settings(self) -> dict[str, Any]:
        """What an episode depends on besides its policy and its seeds."""
        return {"env": self.spec.label, "env_kwargs": dict(self.spec.kwargs), **task_limits(self.args["random"])}


@dataclass(frozen=True)
class EvalPlan:
    """What is evaluated (``run``), the model behind an API if any, the environments, and where the results go."""

    run: EvaluationArguments
    api: ApiArguments
    tasks: Sequence[Task]
    folder: Path


def api_name(api: ApiArguments) -> str | None:
    """The name in tables of the model behind the API; ``None`` if there is none."""
    return None if api.api_model is None else f"{api.api_model} (API)"


def task_limits(args: StarPOConfig) -> dict[str, Any]:
    """The options of ``args`` that are the task's, beside ``env_kwargs``."""
    return {name: getattr(args, name) for name in LIMITS}
