"""vLLM servers in training: an adapter alone, several servers, and servers that die in a rollout."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, VeraConfig
from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vllm import servers as waiting
from ragen_trl.policies.vllm.client import ServerClient, VLLMServerError
from ragen_trl.policies.vllm.engines import ServedEngine
from ragen_trl.policies.vllm.requests import Context
from ragen_trl.policies.vllm.servers import Servers, connected
from ragen_trl.policies.vllm.weights import AdapterError
from ragen_trl.rollout.chat import Chat
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.fake_vllm import LORA, FakeClient, FakeModel, vllm_trainer
from tests.support.ragen_trl.http_vllm import HttpServer, no_vllm_needed
from tests.support.ragen_trl.trainers import SMALL, TOKENIZER, lottery, parameters, small_model, small_trainer

CHAT = Chat(TOKENIZER)
STOP = CHAT.stop_ids(None)
Make = Callable[..., StarPOTrainer]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_PAUSE", 0.05)


@pytest.fixture
def servers() -> Iterator[list[HttpServer]]:
    """Two servers on real sockets."""
    yield from two_servers()


@pytest.fixture
def make(servers: list[HttpServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes LoRA trainers that play on the first of the servers, or on as many as are asked for."""
    return maker(servers, tmp_path, monkeypatch)


def two_servers() -> Iterator[list[HttpServer]]:
    started = [HttpServer(), HttpServer()]
    yield started
    for server in started:
        server.stop()


def maker(servers: list[HttpServer], folder: Path, patch: pytest.MonkeyPatch) -> Make:
    no_vllm_needed(patch)

    def made(name: str, count: int = 1, env: Any = None, **changes: Any) -> StarPOTrainer:
        urls = ", ".join(server.url for server in servers[:count])
        served = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": urls, "vllm_server_timeout": 20.0}
        options = {"vllm_adapter_dir": str(folder / name / "adapters"), "learning_rate": 1e-2, "max_steps": 3}
        small = {"max_reply_length": 3, "per_device_train_batch_size": 4, "num_generations": 2}
        torch.manual_seed(0)  # of the adapter
        return small_trainer(
            folder / name,
            env or lottery(draws=2),
            **{"peft_config": LoraConfig(**LORA), **served, **options, **small, **changes},
        )

    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StarPOTrainer, int]]:
    """A run on one server that stays alive, and the number of its requests for replies."""
    with pytest.MonkeyPatch.context() as patch:
        for servers in two_servers():
            trainer = maker(servers, tmp_path_factory.mktemp("whole"), patch)("run")
            trainer.train()
            yield trainer, len(servers[0].asked)


def losses(trainer: StarPOTrainer) -> list[dict[str, Any]]:
    return [row for row in timeless(trainer) if "loss" in row]


def same_weights(one: StarPOTrainer, other: StarPOTrainer) -> bool:
    theirs = parameters(other)
    return all(torch.equal(value, theirs[name]) for name, value in parameters(one).items())


# The adapter alone


def test_a_server_samples_with_the_adapter_of_each_update(make: Make, servers: list[HttpServer]) -> None:
    trainer = make("run")
    base = {name: value for name, value in parameters(trainer).items() if "lora_" not in name}
    trainer.train()
    assert [row["sampling/ratio_deviation_max"] < 1e-4 for row in losses(trainer)] == [True] * 3
    assert len(set(servers[0].loaded)) == 3  # a folder each: vLLM finds cached contexts by it
    names = {body["model"] for body in servers[0].asked}
    assert names == {Path(folder).name for folder in servers[0].loaded}
    (kept,) = Path(str(trainer.args.vllm_adapter_dir)).iterdir()
    assert str(kept) == servers[0].loaded[2]
    assert all(torch.equal(value, parameters(trainer)[name]) for name, value in base.items())


def test_what_a_killed_run_left_in_its_folder_is_removed(make: Make, tmp_path: Path) -> None:
    for left in ("adapter-0000-7", "partial-0000"):
        (tmp_path / "run" / "adapters" / left).mkdir(parents=True)
    make("run", max_steps=1).train()
    (kept,) = (tmp_path / "run" / "adapters").iterdir()
    assert kept.name.endswith("-1")


def test_a_star_po_asks_the_base_for_its_reference_and_the_adapter_for_the_policy(
    make: Make, servers: list[HttpServer]
) -> None:
    options = {"num_train_seeds": 8, "reference_samples": 2, "max_reference_samples": 2, "num_generations": 1}
    trainer = make("run", config=AStarPOConfig, trainer=AStarPOTrainer, max_steps=2, **options)
    trainer.train()
    asked = [body["model"] for body in servers[0].asked]
    changes = [name for place, name in enumerate(asked) if place == 0 or asked[place - 1] != name]
    assert changes == ["base", *(Path(folder).name for folder in servers[0].loaded)]
    assert [row["sampling/ratio_deviation_max"] < 1e-4 for row in losses(trainer)] == [True] * 2
    values = trainer.values[0].starts
    (Path(trainer.args.output_dir) / "values.sqlite").unlink()
    servers[0].asked.clear()
    trainer.estimate_values()  # of the same base, though the adapter has learnt
    assert {body["model"] for body in servers[0].asked} == {"base"} and values == trainer.values[0].starts


@pytest.mark.parametrize(
    ("peft", "message"),
    [
        (None, "all weights are trained; pass a LoraConfig"),
        (VeraConfig(r=4), "the adapter is a VeraConfig"),
        (LoraConfig(**LORA, use_dora=True), "use_dora .* is True, which vLLM does not read; leave False"),
        (LoraConfig(**LORA, modules_to_save=["lm_head"]), r"modules_to_save .* is \['lm_head'\]"),
        (LoraConfig(**LORA, alpha_pattern={"q_proj": 2}), "alpha_pattern .* is {'q_proj': 2}"),
        (LoraConfig(**LORA, init_lora_weights="pissa"), "init_lora_weights is 'pissa', which changes the base"),
    ],
)
def test_an_adapter_that_vllm_would_read_otherwise_is_refused(make: Make, peft: Any, message: str) -> None:
    with pytest.raises(AdapterError, match=f"vllm_adapter_dir is set, .*{message}.*merged weights"):
        make("run", peft_config=peft)


def test_trl_makes_its_client_under_the_name_that_is_replaced(make: Make, servers: list[HttpServer]) -> None:
    """And gets its own back. Without an adapter's folder TRL opens its group, which needs a GPU."""
    assert vllm_generation.VLLMClient is VLLMClient
    assert isinstance(make("run").vllm_generation.vllm_client, Servers)
    assert vllm_generation.VLLMClient is VLLMClient
    client = ServerClient(servers[0].url)
    assert client.instance() == "1" and client.model == "base"
    with pytest.raises(KeyError, match="weight_transfer_config"):
        client.init_communicator("cpu")


# Several servers


def test_a_server_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback of requests."""
    no_vllm_needed(monkeypatch)
    with pytest.raises(VLLMServerError, match=r"no vLLM server answers at http://127.0.0.1:9 within 0 s"):
        connected("http://127.0.0.1:9", connection_timeout=0.0)


def test_rows_are_dealt_to_servers_and_stay_with_theirs(
    make: Make, servers: list[HttpServer], whole: tuple[StarPOTrainer, int]
) -> None:
    two = make("two", count=2)
    two.train()
    assert losses(two) == losses(whole[0]) and same_weights(two, whole[0])
    prompts = [[body["prompt"][0] for body in server.asked] for server in servers]
    assert sum(map(len, prompts)) == whole[1] and len(prompts[0]) >= 6 and len(prompts[1]) >= 6
    for mine in prompts:  # a later turn begins with what the same server was asked and said before
        for asked in (later for later in mine if TOKENIZER.decode(later).count("drawn") > 0):
            assert any(len(first) < len(asked) and asked[: len(first)] == first for first in mine)
    assert len(servers[1].loaded) == 3


def test_each_server_gets_whole_weights_in_turn() -> None:
    """Fakes without sockets: what TRL sends goes to one server after the other, and rows are dealt by their index."""
    fakes = [FakeModel(small_model()) for _ in range(3)]
    clients = [FakeClient(fake, 2048 - 100 * place) for place, fake in enumerate(fakes)]
    several = Servers(clients)
    engine = ServedEngine(several, 0, list, list)
    assert engine.max_context == 1848
    for index in range(3):
        several.begin_sending(index)
        several.update_named_params([], [("model.norm.weight", torch.full((32,), float(index)))])
        several.reset_prefix_cache()
        several.end_sending()
    assert [fake.model.model.norm.weight[0].item() for fake in fakes] == [0.0, 1.0, 2.0]
    contexts = [Context(CHAT.start("?"), 7 + row, 2, row) for row in (4, 0, 2, 5)]
    replies = engine.complete(contexts, Sampling(2), STOP)
    assert [sorted(request.seed for request in fake.requests) for fake in fakes] == [[7], [11], [9, 12]]
    assert [len(reply.ids) for reply in replies] == [2] * 4


# A server that dies


@pytest.mark.parametrize("count", [1, 2])
def test_a_server_that_dies_in_a_rollout_and_comes_back_changes_nothing(
    make: Make,
    servers: list[HttpServer],
    whole: tuple[StarPOTrainer, int],
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    servers[0].dies_at, servers[0].returns_after = whole[1] // 2 // count, 0.3  # in the second rollout
    broken = make("broken", count)
    with caplog.at_level(logging.WARNING):
        broken.train()
    assert losses(broken) == losses(whole[0]) and same_weights(broken, whole[0])
    assert len(servers[0].loaded) == 4 and len(set(servers[0].loaded)) == 3  # that of one version twice
    told = [row.message for row in caplog.records if "vLLM server" in row.message]
    assert "was started again" in told[-1]
    if count == 1:  # otherwise it is back before the other one has answered its rows
        assert servers[0].url in told[0] and "has not answered since" in told[0] and "waits up to 20 s" in told[0]
        assert "answers again" in told[1] and len(told) == 3


def test_a_server_that_dies_between_rollouts_gets_the_next_adapter(
    make: Make, servers: list[HttpServer], whole: tuple[StarPOTrainer, int]
) -> None:
    broken = make("broken")
    servers[0].returns_after = 0.3
    loss_of = broken.training_loss

    def dies(*given: Any) -> Any:
        if broken.state.global_step == 1:
            servers[0].die()
        return loss_of(*given)

    broken.training_loss = dies  # type: ignore[method-assign]
    broken.train()
    assert losses(broken) == losses(whole[0]) and same_weights(broken, whole[0])


def test_one_that_never_comes_back_ends_the_run_with_a_checkpoint(
    make: Make, servers: list[HttpServer], whole: tuple[StarPOTrainer, int]
) -> None:
    servers[0].dies_at = whole[1] - 2  # in the rollout before the third update
    broken = make("run", vllm_server_timeout=0.3)
    with pytest.raises(VLLMServerError, match=f"{servers[0].url} failed.*start it again.*resume from the last"):
        broken.train()
    assert [path.name for path in Path(broken.args.output_dir).glob("checkpoint-*")] == ["checkpoint-2"]
    servers[0].dies_at = -1
    servers[0].start()
    resumed = make("run")
    resumed.train(resume_from_checkpoint=True)
    assert same_weights(resumed, whole[0])
    assert losses(resumed)[-1]["loss"] == losses(whole[0])[-1]["loss"]


def test_one_step_off_reloads_the_adapter_that_the_rollout_began_with(make: Make, servers: list[HttpServer]) -> None:
    alive = make("alive", one_step_off_policy=True)
    alive.train()
    servers[0].dies_at, servers[0].returns_after = len(servers[0].asked) * 3 // 2, 0.3
    broken = make("broken", one_step_off_policy=True)
    broken.train()
    assert losses(broken) == losses(alive) and same_weights(broken, alive)


def test_whole_weights_are_sent_again_to_a_server_that_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not fail, it only has other weights: without its name for its process nobody would know."""
    options: dict[str, Any] = {"vllm_mode": "server", "learning_rate": 1e-2, "max_steps": 3, "max_reply_length": 3}
    whole, broken = (vllm_trainer(tmp_path / name, monkeypatch, lottery(draws=2), **options) for name in "ab")
    whole.train()
    (client,) = broken.vllm_generation.vllm_client._clients
    generate = client.generate

    def forgets(**given: Any) -> Any:
        if client.fake.loads == 2 and client.process == "first" and len(client.fake.requests) % 5 == 4:
            client.fake.model.load_state_dict(small_model(1).state_dict())
            client.process = "second"
        return generate(**given)

    client.generate = forgets
    broken.train()
    assert client.fake.loads == 4
    assert losses(broken) == losses(whole) and same_weights(whole, broken)
    assert "was started again, without the weights of this run" in caplog.text


def test_whole_weights_that_were_trained_on_meanwhile_cannot_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"vllm_mode": "server", "one_step_off_policy": True, "max_steps": 4}
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=2), **{**options, "max_reply_length": 3})
    (client,) = trainer.vllm_generation.vllm_client._clients
    generate = client.generate

    def forgets(**given: Any) -> Any:
        client.process = "second" if client.fake.loads == 2 else client.process
        return generate(**given)

    client.generate = forgets
    with pytest.raises(VLLMServerError, match="one_step_off_policy.*set vllm_adapter_dir"):
        trainer.train()


def test_a_request_that_a_server_refuses_is_not_waited_for(make: Make, servers: list[HttpServer]) -> None:
    """It is well, and the same process: after three tries that is the answer."""
    engine = ServedEngine(Servers([ServerClient(servers[0].url)], patience=60.0), 0, list, list)
    client = engine._servers._clients[0]  # type: ignore[union-attr]
    client.model = "nobody"
    with pytest.raises(VLLMServerError, match="404.*The model `nobody` does not exist"):
        engine.complete([Context([1], 0, 1)], Sampling(1), STOP)


def test_other_processes_may_not_give_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StarPOConfig, "world_size", 2)
    options = {**SMALL, "use_vllm": True, "vllm_mode": "server", "num_generations": 4}
    with pytest.raises(ValueError, match="vllm_server_timeout is 1800 and ddp_timeout 1800.*lower the first"):
        StarPOConfig(output_dir=str(tmp_path), vllm_server_timeout=1800.0, **options)
