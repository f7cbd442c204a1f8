"""A real vLLM server: its replies and their log-probabilities. Weights travel over NCCL, so not on a CPU."""

from pathlib import Path
from typing import Any

import pytest
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.trainers import LAKE, SMALL
from tests.support.ragen_trl.vllm_process import VLLMProcess

pytestmark = pytest.mark.timeout(900)


def test_greedy_replies_are_those_of_the_transformers_backend(
    folder: Path, server: VLLMProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda *_, **__: None)
    monkeypatch.setattr(VLLMGeneration, "sync_weights", lambda *_: None)
    served: dict[str, Any] = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server.url}
    trainer = StarPOTrainer(str(folder), LAKE, StarPOConfig(output_dir=str(tmp_path), **{**SMALL, **served}))
    starts = [Start(seed, sampling_seed=9 + seed) for seed in range(2)]
    found = play(quizzes([1, 3]), trainer.policy(0.0), starts)
    own = TransformersPolicy(trainer.model, trainer.chat, Sampling(trainer.args.max_reply_length, 0.0))
    for one, other in zip(found, play(quizzes([1, 3]), own, starts), strict=True):
        assert one.token_ids == other.token_ids
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-3)
