"""A real vLLM engine: its replies, its log-probabilities, and whose weights it has; and a server of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import Context
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.astar_runs import SMALL_STAGE, Spy
from tests.support.ragen_trl.fake_envs import quizzes, starts
from tests.support.ragen_trl.trainers import LAKE, SMALL, both_scores, limits_of, logged, lottery, parameters

pytestmark = pytest.mark.timeout(900)  # an engine takes minutes to start
Make = Callable[..., StarPOTrainer]


@pytest.fixture(scope="module")
def trainer(train: Make) -> StarPOTrainer:
    """Two updates on the bandit, with log-probabilities of every turn."""
    made = train("ragen/Bandit-v0", max_steps=3, learning_rate=1e-2, max_turns=3)
    made.train()
    return made


def sampled(played: Sequence[Trajectory]) -> list[tuple[int, ...]]:
    return [trajectory.token_ids for trajectory in played]


def difference(model: Any, trajectory: Trajectory, temperature: float = 1.0) -> float:
    """The largest between what the engine says of its tokens and a forward pass over the whole trajectory."""
    found, expected = both_scores(model, trajectory, temperature)
    return float((found - expected).abs().max())


def test_training_plays_on_the_weights_of_every_step(trainer: StarPOTrainer) -> None:
    assert_samples_from_what_is_trained(trainer)
    assert min(logged(trainer, "sampling/importance_sampling_ratio/mean")) > 0.999


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_forward_pass(trainer: StarPOTrainer, temperature: float) -> None:
    for trajectory in play(quizzes([1, 4, 2]), trainer.policy(temperature), starts(3)):
        assert difference(trainer.model, trajectory, temperature) < 1e-3


def assert_greedy_as_transformers(trainer: StarPOTrainer) -> None:
    found = play(quizzes([3, 1, 2]), trainer.policy(temperature=0.0), starts(3))
    reference = TransformersPolicy(trainer.model, trainer.chat, Sampling(trainer.args.max_reply_length, 0.0))
    expected = play(quizzes([3, 1, 2]), reference, starts(3))
    assert sampled(found) == sampled(expected)
    for one, other in zip(found, expected, strict=True):
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-3)
            assert (turn.reply, turn.cut) == (twin.reply, twin.cut)


def test_greedy_replies_are_those_of_the_transformers_backend(trainer: StarPOTrainer) -> None:
    assert_greedy_as_transformers(trainer)


def test_seeds_make_play_reproducible_and_each_row_has_its_own(trainer: StarPOTrainer) -> None:
    first = play(quizzes([2, 2, 3]), trainer.policy(), starts(3))
    again = play(quizzes([2, 2, 3]), trainer.policy(), starts(3))
    assert sampled(first) == sampled(again)
    alone = play(quizzes([2, 2, 3])[2:], trainer.policy(), starts(3)[2:])
    assert sampled(alone) == sampled(first[2:])
    other = play(quizzes([2, 2, 3]), trainer.policy(), [Start(0, sampling_seed=seed) for seed in (7, 8, 9)])
    assert sampled(other) != sampled(first)


def test_top_k_changes_what_is_reported_to_what_was_sampled_from(trainer: StarPOTrainer) -> None:
    """Unlike the Transformers backend, which reports the whole distribution; TRL's ratio takes either."""
    assert trainer._engine is not None
    ids = trainer.chat.start("?")
    replies = trainer._engine.complete([Context(ids, seed, 1) for seed in range(20)], Sampling(1, top_k=3), frozenset())
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([ids])).logits[0, -1]
    kept = logits.topk(3)
    expected = dict(zip(kept.indices.tolist(), kept.values.log_softmax(-1).tolist(), strict=True))
    assert {sampled for (sampled,), _ in replies} <= set(expected)
    for (sampled,), (logprob,) in replies:
        assert logprob == pytest.approx(expected[sampled], abs=1e-3)


def test_new_weights_reach_an_engine_that_knows_the_contexts_already(trainer: StarPOTrainer) -> None:
    """The prefix cache is on, and emptied: old keys and values would give the old log-probabilities."""
    assert trainer.vllm_generation.llm.llm_engine.vllm_config.cache_config.enable_prefix_caching
    before = play(quizzes([3, 2]), trainer.policy(), starts(2))
    with torch.no_grad():
        for value in trainer.model.parameters():
            value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
    assert all(difference(trainer.model, one) > 1e-2 for one in before)
    for trajectory in play(quizzes([3, 2]), trainer.policy(), starts(2)):
        assert difference(trainer.model, trajectory) < 1e-3


def assert_samples_from_what_is_trained(made: StarPOTrainer) -> None:
    deviations = logged(made, "sampling/ratio_deviation_max")
    assert len(deviations) == 3 and max(deviations) < 1e-3


def test_a_lora_run_on_the_lake(train: Make) -> None:
    made = train(LAKE, max_steps=3, learning_rate=1e-2, peft_config=LoraConfig(r=4, target_modules="all-linear"))
    base = {name: value for name, value in parameters(made).items() if "lora_" not in name}
    made.train()
    assert_samples_from_what_is_trained(made)
    for name, value in parameters(made).items():
        assert torch.equal(value, base[name]) if name in base else True


def test_a_star_po_estimates_v_star_and_trains(train: Make) -> None:
    options = {**SMALL_STAGE, "max_steps": 3, "refresh_steps": 2, "learning_rate": 1e-2, **limits_of(lottery(draws=3))}
    made = train(lottery(draws=3), AStarPOConfig, Spy, **options)
    assert isinstance(made, AStarPOTrainer)
    made.train()
    assert made.estimated_at == [0, 2]  # type: ignore[attr-defined]
    assert_samples_from_what_is_trained(made)


# A server. Weights travel over NCCL, so not on a CPU


def test_a_servers_greedy_replies_are_those_of_the_transformers_backend(
    folder: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda *_, **__: None)
    monkeypatch.setattr(VLLMGeneration, "sync_weights", lambda *_: None)
    served: dict[str, Any] = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server}
    trainer = StarPOTrainer(str(folder), LAKE, StarPOConfig(output_dir=str(tmp_path), **{**SMALL, **served}))
    assert_greedy_as_transformers(trainer)
