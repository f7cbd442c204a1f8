"""Playing with vLLM: what is sent, what comes back, and what cannot work."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ragen_trl.policies import vllm
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import ColocatedEngine, Context, ServedEngine, VLLMPolicy, VLLMServerError
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.fake_vllm import FakeClient, FakeLLM, FakeModel, starts, vllm_trainer
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

CHAT = Chat(TOKENIZER)
STOP = CHAT.stop_ids(None)


@pytest.fixture
def fake() -> FakeModel:
    return FakeModel(small_model())


def engine_of(fake: FakeModel, length: int = 2048) -> ColocatedEngine:
    return ColocatedEngine(FakeLLM(fake, length), SimpleNamespace)


def policy_of(
    fake: FakeModel,
    temperature: float = 1.0,
    length: int = 2048,
    positions: int = 2048,
    stop_at_answer: bool = False,
) -> VLLMPolicy:
    model = small_model()
    model.config.max_position_embeddings = positions
    sampling = Sampling(5, temperature, stop_at_answer=stop_at_answer)
    return VLLMPolicy(engine_of(fake, length), model, CHAT, sampling)


# What is sent


def test_every_turn_sends_the_whole_context_as_it_will_be_trained(fake: FakeModel) -> None:
    played = play(quizzes([1, 3, 2]), policy_of(fake), starts(3))
    sent = sorted(tuple(request.ids) for request in fake.requests)
    contexts = []
    for trajectory in played:
        before: tuple[int, ...] = ()
        for turn in trajectory.turns:
            contexts.append(before + turn.prompt_ids)
            before = contexts[-1] + turn.reply_ids
        assert before == trajectory.token_ids
    assert sent == sorted(contexts)
    assert {tuple(request.stop) for request in fake.requests} == {tuple(sorted(STOP))}


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
    with pytest.raises(VLLMServerError, match="http://fake:8000 failed .ZeroDivisionError.*last checkpoint"):
        engine.complete([Context(CHAT.start("?"), 7, 3)], Sampling(9, 1.0), STOP)


# Weights


def test_a_failed_sending_ends_training_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=2, vllm_mode="server")
    client = trainer.vllm_generation.vllm_client
    sent: list[int] = []

    def update(metadata: object, named_params: object) -> None:
        sent.append(1)
        if len(sent) == 2:
            raise ConnectionError("gone")

    client.update_named_params = update
    with pytest.raises(VLLMServerError, match="failed .ConnectionError: gone"):
        trainer.train()
