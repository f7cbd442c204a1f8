"""A real vLLM server, asked through TRL's own client. Whole weights cannot be sent to it: that needs NCCL and a GPU."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm.client import ServerClient, VLLMServerError
from ragen_trl.policies.vllm.engines import ServedEngine
from ragen_trl.policies.vllm.policy import VLLMPolicy
from ragen_trl.policies.vllm.requests import Context
from ragen_trl.policies.vllm.servers import Servers
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.vllm_process import VLLMProcess

pytestmark = pytest.mark.timeout(900)
CHAT = Chat(build_tiny_tokenizer())


@pytest.fixture(scope="module")
def client(server: VLLMProcess) -> ServerClient:
    """Of the server."""
    return server.client()


def alone(client: ServerClient) -> ServedEngine:
    """Without collectives: an engine in this process, if there was one, has left its process group half behind."""
    return ServedEngine(Servers([client]), gather=list, broadcast=list)


def test_play_is_reproducible_and_its_logprobs_are_those_of_a_forward_pass(client: ServerClient, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    policy = VLLMPolicy(alone(client), model, CHAT, Sampling(8, 0.7))
    assert policy.max_context == 2048
    starts = [Start(seed, sampling_seed=9 + seed) for seed in range(3)]
    first, again = (play(quizzes([3, 1, 2]), policy, starts) for _ in range(2))
    assert [one.token_ids for one in first] == [one.token_ids for one in again]
    for trajectory in first:
        ids = torch.tensor([trajectory.token_ids])
        scores = (model(input_ids=ids).logits[0] / 0.7).log_softmax(-1).detach()
        mask = torch.tensor(trajectory.action_mask[1:]).bool()
        expected = scores[:-1].gather(1, ids[0, 1:, None]).squeeze(1)[mask]
        found = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
        torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-3)


def test_rows_have_their_own_seeds_and_limits(client: ServerClient) -> None:
    contexts = [Context(CHAT.start("?"), seed, 1 + seed) for seed in range(6)]
    replies = alone(client).complete(contexts, Sampling(9), frozenset({0}))
    assert len({reply.ids[0] for reply in replies}) > 1
    assert all(len(reply.ids) == 1 + seed or reply.ids[-1] == 0 for seed, reply in enumerate(replies))


def test_its_openai_api_says_what_the_local_model_says(client: ServerClient, folder: Path) -> None:
    """The API renders the chat itself; greedy replies to the first message are those to our own token ids."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    starts = [Start(seed) for seed in range(3)]
    local = play(quizzes([1, 1, 1]), TransformersPolicy(model, CHAT, Sampling(12, 0.0)), starts)
    server = ApiClient(f"{client.base_url}/v1", "nobody")
    with server, ApiPolicy(str(folder), Sampling(12, 0.0), server) as policy:
        asked = play(quizzes([1, 1, 1]), policy, starts)
        assert [one.turns[0].reply for one in asked] == [one.turns[0].reply for one in local]
        assert policy.counts.as_dict()["completion_tokens"] == sum(one.num_reply_tokens for one in local)


def test_what_the_server_refuses_is_named(client: ServerClient) -> None:
    with pytest.raises(VLLMServerError, match=r"http://127\.0\.0\.1.*failed.*2048"):
        alone(client).complete([Context([1] * 2049, 0, 1)], Sampling(1), frozenset())


def test_weights_cannot_be_sent_without_a_gpu(client: ServerClient) -> None:
    """Why training behind a server is only tested with a fake one; TRL says so when the trainer is made."""
    with pytest.raises(NotImplementedError, match="CUDA"):
        client.init_communicator(device="cpu")
