"""Playing with vLLM: what is sent, what comes back, and what cannot work."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl.generation.vllm_client import VLLMClient

from ragen_trl import StarPOConfig
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm.client import VLLMServerError
from ragen_trl.policies.vllm.engines import ColocatedEngine, EngineError, ServedEngine
from ragen_trl.policies.vllm.policy import VLLMPolicy
from ragen_trl.policies.vllm.requests import Context
from ragen_trl.policies.vllm.servers import Servers
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.fake_vllm import (
    FakeClient,
    FakeLLM,
    FakeModel,
    install_fake_vllm,
    starts,
)
from tests.support.ragen_trl.trainers import TOKENIZER, small_model, small_trainer

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
    max_length: int | None = None,
    stop_at_answer: bool = False,
) -> VLLMPolicy:
    model = small_model()
    model.config.max_position_embeddings = positions
    sampling = Sampling(5, temperature, stop_at_answer=stop_at_answer)
    return VLLMPolicy(engine_of(fake, length), model, CHAT, sampling, max_length)


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


def test_the_room_that_is_left_limits_a_reply(fake: FakeModel) -> None:
    (free,) = play(quizzes([2]), policy_of(fake), starts(1))
    room = len(free.token_ids) - len(free.turns[0].prompt_ids) - 2  # two tokens less than it took
    fake.requests.clear()
    (short,) = play(quizzes([2]), policy_of(fake), starts(1), max_length=room)
    assert [request.max_tokens for request in fake.requests] == [5, len(free.turns[1].reply_ids) - 2]
    assert short.turns[1].reply_ids == free.turns[1].reply_ids[:-2]
    assert short.turns[1].cut


def test_a_context_that_is_full_ends_the_episode(fake: FakeModel) -> None:
    (free,) = play(quizzes([3]), policy_of(fake), starts(1))
    second = len(free.turns[0].prompt_ids) + len(free.turns[0].reply_ids) + len(free.turns[1].prompt_ids)
    (short,) = play(quizzes([3]), policy_of(fake, length=second, positions=second), starts(1))
    assert (len(short.turns), short.truncated, short.limit) == (1, True, "context")


def test_greedy_replies_and_their_logprobs_are_those_of_the_transformers_backend(fake: FakeModel) -> None:
    ours = play(quizzes([1, 3]), policy_of(fake, temperature=0.0), starts(2))
    reference = TransformersPolicy(small_model(), CHAT, Sampling(5, 0.0))
    expected = play(quizzes([1, 3]), reference, starts(2))
    for one, other in zip(ours, expected, strict=True):
        assert one.token_ids == other.token_ids
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-5)
            assert (turn.reply, turn.cut) == (twin.reply, twin.cut)


def test_an_engine_shorter_than_the_model_must_take_prompt_and_completion(fake: FakeModel) -> None:
    prompt = len(CHAT.start(quizzes([1])[0]._question()))
    assert len(play(quizzes([1]), policy_of(fake, length=prompt + 100, max_length=100), starts(1), 100)) == 1
    with pytest.raises(EngineError, match=rf"{prompt + 99} tokens.*at least {prompt + 100}"):
        play(quizzes([1]), policy_of(fake, length=prompt + 99, max_length=100), starts(1), 100)
    # Where the model itself is as short, episodes end at its limit, as with the other backend.
    short = policy_of(fake, length=prompt + 99, positions=prompt + 99, max_length=100)
    assert len(play(quizzes([1]), short, starts(1), 100)) == 1


def test_a_reply_may_end_with_its_answer(fake: FakeModel) -> None:
    """The tag is made the most likely token after the first prompt; greedy, beside the other backend."""
    (tag,) = CHAT.encode_reply("</answer>")[:-1]
    twin = small_model()
    prompt = torch.tensor([CHAT.start(quizzes([3])[0]._question())])
    state = twin.model(prompt).last_hidden_state[0, -1].detach()
    for model in (fake.model, twin):
        model.get_input_embeddings().weight.data[tag] = state
    for ends in (False, True):
        (ours,) = play(quizzes([3]), policy_of(fake, 0.0, stop_at_answer=ends), starts(1))
        reference = TransformersPolicy(twin, CHAT, Sampling(5, 0.0, stop_at_answer=ends))
        (expected,) = play(quizzes([3]), reference, starts(1))
        assert ours.token_ids == expected.token_ids
        assert [turn.cut for turn in ours.turns] == [turn.cut for turn in expected.turns]
        assert ours.turns[0].reply_ids[0] == tag
        assert (len(ours.turns[0].reply_ids), ours.turns[0].cut) == ((1, False) if ends else (5, True))


# A server


def served(fakes: FakeModel, process: int = 0, others: Any = ()) -> ServedEngine:
    return ServedEngine(Servers([FakeClient(fakes)]), process, lambda mine: [*mine, *others], lambda shared: shared)


def test_a_server_is_asked_for_the_rows_of_all_processes_and_each_takes_its_own(fake: FakeModel) -> None:
    contexts = [Context(CHAT.start(str(number)), 7 + number, 2 + number) for number in range(4)]
    everyone = [(0, contexts[0]), *((1, context) for context in contexts[1:])]
    engine = ServedEngine(Servers([FakeClient(fake)]), 1, lambda mine: everyone, lambda shared: shared)
    mine = engine.complete(contexts[1:], Sampling(9, 1.0), STOP)
    alone = engine_of(fake).complete(contexts, Sampling(9, 1.0), STOP)
    assert mine == alone[1:]
    assert len({tuple(completion.ids) for completion in alone}) == 4


def test_processes_go_on_while_any_of_them_plays(fake: FakeModel) -> None:
    assert served(fake, others=[True]).anyone(False)
    assert not served(fake, others=[False]).anyone(False)
    assert engine_of(fake).anyone(True) and not engine_of(fake).anyone(False)


def test_no_rows_at_all_make_no_request(fake: FakeModel) -> None:
    assert served(fake).complete([], Sampling(5), STOP) == []
    assert engine_of(fake).complete([], Sampling(5), STOP) == []
    assert fake.requests == []


def test_a_server_that_fails_is_an_error_on_every_process() -> None:
    broken = FakeClient(FakeModel(small_model()))
    sent: list[list[Any]] = []

    def broadcast(shared: list[Any]) -> list[Any]:
        sent.append(list(shared))
        return shared

    main = ServedEngine(Servers([broken]), 0, list, broadcast)
    broken.generate = lambda **_: (_ for _ in ()).throw(OSError("connection refused"))  # type: ignore[method-assign]
    with pytest.raises(VLLMServerError, match="http://fake:8000 failed.*connection refused.*vllm serve MODEL"):
        main.complete([Context([1], 0, 1)], Sampling(5), STOP)

    def received(shared: list[Any]) -> list[Any]:
        shared[:] = sent.pop(0)
        return shared

    other = ServedEngine(None, 1, list, received)
    assert other.max_context == 2048
    with pytest.raises(VLLMServerError, match="connection refused"):
        other.complete([Context([1], 0, 1)], Sampling(5), STOP)


def test_trls_client_sends_seed_stop_and_limit_of_a_row() -> None:
    """`ServedEngine` passes what the client has no argument for in ``generation_kwargs``, and reads this answer."""
    client = VLLMClient.__new__(VLLMClient)
    client.base_url, client.model = "http://x", "m"
    seen: list[dict[str, Any]] = []

    def post(url: str, json: dict[str, Any]) -> dict[str, Any]:
        seen.append({"url": url, **json})
        logprobs = {
            "tokens": ["token_id:5", "token_id:2"],
            "token_logprobs": [-0.5, math.nan],
            "top_logprobs": [{"token_id:5": -0.5}, {"token_id:2": math.nan}],
        }
        return {"choices": [{"prompt_token_ids": [1, 3], "token_ids": [5, 2], "logprobs": logprobs}]}

    client._post = post
    client.get_server_info = lambda: {"model_config": {"max_model_len": 64}}
    client.instance = lambda: "one"
    engine = ServedEngine(Servers([client]))
    (completion,) = engine.complete([Context([1, 3], 11, 4)], Sampling(9, 0.7, 3, 0.9), frozenset({2, 0}))
    assert completion.ids == [5, 2]
    assert completion.logprobs[0] == -0.5 and math.isnan(completion.logprobs[1])
    (request,) = seen
    assert request["url"] == "http://x/v1/completions" and request["prompt"] == [[1, 3]]
    expected = {"seed": 11, "stop_token_ids": [0, 2], "max_tokens": 4, "logprobs": 0, "n": 1}
    expected |= {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.0}
    assert {name: request[name] for name in expected} == expected


# Mistakes


def test_a_model_without_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake_vllm(monkeypatch)
    with pytest.raises(EngineError, match="built in memory"):
        small_trainer(tmp_path, use_vllm=True)
    server = small_trainer(tmp_path, use_vllm=True, vllm_mode="server")  # has a model of its own
    assert server.policy().max_context == 2048


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vllm_tensor_parallel_size": 2}, "vllm_tensor_parallel_size is 2.*vllm_mode='server'"),
        ({"vllm_max_model_length": 3600}, "vllm_max_model_length is 3600.*max_completion_length 3600"),
        ({"vllm_structured_outputs_regex": ".*"}, "vllm_structured_outputs_regex"),
        ({"vllm_enable_sleep_mode": True, "vllm_mode": "server"}, "vllm_enable_sleep_mode is True.*GPUs of its own"),
        ({"vllm_adapter_dir": "x"}, "vllm_adapter_dir is 'x'.*vllm_mode='server'"),
    ],
)
def test_options_that_would_not_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StarPOConfig(output_dir="x", use_cpu=True, use_vllm=True, **options)


def test_a_server_may_be_as_parallel_as_it_likes() -> None:
    args = StarPOConfig(output_dir="x", use_cpu=True, use_vllm=True, vllm_mode="server", vllm_tensor_parallel_size=4)
    assert args.use_vllm
