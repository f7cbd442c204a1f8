"""A trainer of this project learns from environments of other packages, as from any other."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ragen_envs import GemText, OpenEnvText, Tau2, VerifiersTools, openenv_environment
from tests.support.ragen_envs.bridging import SMALL_LAKE, serving

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else LiteLLM's import asks the network


def train(folder: Path, env: Any, tools: bool = False) -> list[Any]:
    """The episodes of the last of two rollouts; the first compares log-probabilities of sampler and trainer."""
    from ragen_trl import StarPOConfig, StarPOTrainer
    from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
    from tests.support.ragen_trl.trainers import SMALL, LastRollout

    tokenizer = build_tiny_tokenizer(env="ragen/Tools-v0" if tools else None)  # the one with tools has their template
    model = build_tiny_model(tokenizer, hidden_size=32, num_layers=2)
    args = StarPOConfig(output_dir=str(folder), **{**SMALL, "max_completion_length": 4000})
    trainer = StarPOTrainer(model, env, args, processing_class=tokenizer)
    last = LastRollout(trainer)
    trainer.train()
    assert trainer.state.global_step == 2
    assert len(last.played) == 8 and all(trajectory.turns for trajectory in last.played)
    return last.played


def test_on_a_game_of_gem(tmp_path: Path) -> None:
    pytest.importorskip("gem", reason="make test-bridges runs this one")
    played = train(tmp_path, lambda: GemText("game:GuessTheNumber-v0-easy"))
    assert "Guess The Number" in played[0].turns[0].observation


def test_on_an_openenv_server(tmp_path: Path) -> None:
    server = pytest.importorskip("openenv.core.env_server", reason="make test-bridges runs this one")
    app = server.create_app(*openenv_environment(SMALL_LAKE), max_concurrent_envs=64)
    with serving(app) as url:
        played = train(tmp_path, lambda: OpenEnvText(url))
    assert "Walk over the frozen lake" in played[0].turns[0].observation


def test_on_tools_of_verifiers(tmp_path: Path) -> None:
    vf = pytest.importorskip("verifiers", reason="make test-bridges runs this one")
    from datasets import Dataset

    def double(number: int) -> int:
        """Double a number.

        Args:
            number: Which.
        """
        return 2 * number

    def right(completion: Any, answer: str) -> float:
        return float(answer in str(completion[-1].content))

    data = Dataset.from_dict({"question": ["2 x 3"], "answer": ["6"]})
    env = vf.ToolEnv(tools=[double], dataset=data, rubric=vf.Rubric(funcs=[right]))
    played = train(tmp_path, lambda: VerifiersTools(env), tools=True)
    assert "2 x 3" in played[0].turns[0].observation and played[0].turns[-1].info["env_info"]["stop_condition"]


def test_on_a_domain_of_tau2(tmp_path: Path) -> None:
    pytest.importorskip("tau2.gym.gym_agent", reason="make test-bridges runs this one")
    from loguru import logger

    def user(scenario: str, said: Sequence[str]) -> str:
        return "Please create a task." if len(said) == 1 else "###STOP###"

    logger.disable("tau2")
    played = train(tmp_path, lambda: Tau2("mock", user=user, tasks=["create_task_1"]), tools=True)
    assert played[0].turns[-1].info["env_info"]["termination_reason"] in ("user_stop", "")
