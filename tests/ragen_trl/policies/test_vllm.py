"""Playing and training with vLLM: what is sent, what comes back, whose weights, and what log-probabilities do."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragen_trl.errors import UserError
from ragen_trl.policies import vllm
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import ColocatedEngine, Context, ServedEngine, VLLMPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.equivalence import step
from tests.support.ragen_trl.fake_envs import quizzes, starts
from tests.support.ragen_trl.fake_vllm import FakeClient, FakeLLM, FakeModel, fake_of, vllm_trainer
from tests.support.ragen_trl.trainers import TOKENIZER, logged, lottery, parameters, small_model

CHAT = Chat(TOKENIZER)
STOP = CHAT.stop_ids(None)


@pytest.fixture
def fake() -> FakeModel:
    return FakeModel(small_model())


def engine_of(fake: FakeModel) -> ColocatedEngine:
    return ColocatedEngine(FakeLLM(fake, 2048), SimpleNamespace)


def policy_of(fake: FakeModel, temperature: float = 1.0) -> VLLMPolicy:
    return VLLMPolicy(engine_of(fake), small_model(), CHAT, Sampling(5, temperature))


# What is sent


def test_every_request_has_a_seed_of_its_own_and_rows_keep_theirs_in_any_batch(fake: FakeModel) -> None:
    together = play(quizzes([2, 2, 3]), policy_of(fake), starts(3))
    assert len({request.seed for request in fake.requests}) == len(fake.requests) == 7
    alone = play(quizzes([2, 2, 3])[2:], policy_of(fake), starts(3)[2:])
    assert [turn.reply_ids for turn in alone[0].turns] == [turn.reply_ids for turn in together[2].turns]
    assert together[0].turns[0].reply_ids != together[1].turns[0].reply_ids


def test_greedy_replies_and_their_logprobs_are_those_of_the_transformers_backend(fake: FakeModel) -> None:
    ours = play(quizzes([1, 3]), policy_of(fake, temperature=0.0), starts(2))
    reference = TransformersPolicy(small_model(), CHAT, Sampling(5, 0.0))
    expected = play(quizzes([1, 3]), reference, starts(2))
    assert {tuple(request.stop) for request in fake.requests} == {tuple(sorted(STOP))}
    for one, other in zip(ours, expected, strict=True):
        assert one.token_ids == other.token_ids
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-5)
            assert (turn.reply, turn.cut) == (twin.reply, twin.cut)


# A server


def test_a_server_is_asked_for_the_rows_of_all_processes_and_each_takes_its_own(
    fake: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = [Context(CHAT.start(str(number)), 7 + number, 2 + number) for number in range(4)]
    everyone = [(0, contexts[0]), *((1, context) for context in contexts[1:])]
    monkeypatch.setattr(vllm, "gather_object", lambda mine: everyone)
    engine = ServedEngine(FakeClient(fake), 1)
    mine = engine.complete(contexts[1:], Sampling(9, 1.0), STOP)
    alone = engine_of(fake).complete(contexts, Sampling(9, 1.0), STOP)
    assert mine == alone[1:]
    assert len({tuple(ids) for ids, _ in alone}) == 4


def test_a_dead_server_is_one_line(fake: FakeModel) -> None:
    client = FakeClient(fake)
    engine = ServedEngine(client)
    client.generate = lambda **_: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError, match="http://fake:8000 failed .ZeroDivisionError.*last checkpoint"):
        engine.complete([Context(CHAT.start("?"), 7, 3)], Sampling(9, 1.0), STOP)


# Training with vLLM: whose weights it samples from, and what its log-probabilities do in the update


def test_training_samples_from_the_weights_of_every_step_and_sends_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=3, learning_rate=1e-2)
    before = parameters(trainer)
    trainer.train()
    assert max(float((value - before[name]).abs().max()) for name, value in parameters(trainer).items()) > 1e-2
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-4
    assert logged(trainer, "sampling/importance_sampling_ratio/mean") == pytest.approx([1.0] * 3, abs=1e-4)
    assert fake_of(trainer).loads == 3
    monkeypatch.setattr(FakeModel, "load", lambda *_: None)  # with weights of the first step ratios are off
    stale = vllm_trainer(tmp_path, monkeypatch, max_steps=2, learning_rate=1e-2)
    stale.train()
    assert logged(stale, "sampling/ratio_deviation_max")[1] > 1e-2


# Importance ratios

# Plain SGD: a step is the gradient. Filtered to half of the groups, in micro-batches: there is filler. An engine as far
# off as here would stop the run.
OFF: dict[str, Any] = {
    "optim": "sgd",
    "learning_rate": 1.0,
    "max_grad_norm": 0.0,
    "max_steps": 1,
    "entropy_coef": 0.0,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 8,
    "filter_ratio": 0.4,
    "max_reply_length": 3,
    "sampler_check": "warn",
}


@pytest.mark.parametrize(
    ("loss_type", "mode", "beyond"), [("grpo", "token_truncate", 3.0), ("dapo", "token_mask", 0.0)]
)
def test_a_ratio_weighs_every_token_and_none_of_what_the_loss_is_divided_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str, mode: str, beyond: float
) -> None:
    """An engine that calls all tokens half as likely as they are: ratio 2, twice the step; beyond 3 it is cut off."""
    steps, logs = {}, []
    options = {**OFF, "loss_type": loss_type, "vllm_importance_sampling_mode": mode}
    for offset in (0.0, math.log(0.5), math.log(0.1)):
        trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), **options)
        fake_of(trainer).offset = offset
        steps[offset] = step(trainer)
        sampled, trained = (trainer.state.log_history[0][f"filter/trajectories_{kind}"] for kind in ("sampled", "used"))
        assert trained < sampled
        logs.append(trainer.state.log_history[0])
    assert [row["sampling/importance_sampling_ratio/mean"] for row in logs] == pytest.approx([1, 2, beyond], rel=1e-3)
    assert [row["sampling/ratio_cut_share"] for row in logs] == [0.0, 0.0, 1.0]
    exact, doubled, capped = steps.values()
    assert max(float(value.abs().max()) for value in exact.values()) > 1e-3
    for name, value in exact.items():
        torch.testing.assert_close(doubled[name], 2 * value, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(capped[name], beyond * value, rtol=1e-3, atol=1e-6)
