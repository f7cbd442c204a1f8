"""Two processes behind one vLLM server: nobody waits for ever, and everybody gets their own replies."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl.generation import vllm_generation

from ragen_trl.rollout.chat import Chat
from tests.support.ragen_trl.fake_vllm import FakeClient, FakeModel
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.trainers import TOKENIZER, small_model


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What either process found; a process that waits for the other runs into the time limit."""
    folder = tmp_path_factory.mktemp("ranks")
    on_two_processes("tests.support.ragen_trl.vllm_two_ranks", folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def test_training_ends_although_one_process_plays_longer(results: list[dict[str, Any]]) -> None:
    turns = [result["starpo"]["turns"] for result in results]
    assert max(turns[0]) != max(turns[1])
    for algorithm in ("starpo", "astar_po"):
        first, second = (result[algorithm]["parameters"] for result in results)
        assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_everybody_trains_on_their_own_replies(results: list[dict[str, Any]]) -> None:
    """A reply to another context would have other log-probabilities in the trainer than on the server."""
    rows = [row for result in results for run in result.values() for row in run["metrics"]]
    deviations = [row["sampling/ratio_deviation_max"] for row in rows if "sampling/ratio_deviation_max" in row]
    assert len(deviations) >= 2 and max(deviations) < 1e-4


def test_rows_of_any_number_are_played_as_they_would_be_alone(results: list[dict[str, Any]]) -> None:
    for result, lengths in zip(results, ([1], [5, 1, 2, 3]), strict=True):
        played = result["starpo"]["played"]
        assert [len(trajectory.turns) for trajectory in played] == lengths
        model = small_model()
        model.load_state_dict(result["starpo"]["parameters"], strict=False)
        for trajectory in played:
            logits = model(torch.tensor([trajectory.token_ids])).logits[0].log_softmax(-1)
            ids = torch.tensor(trajectory.token_ids[1:])
            trained = logits[:-1].gather(1, ids[:, None]).squeeze(1)[torch.tensor(trajectory.action_mask[1:]).bool()]
            sampled = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
            torch.testing.assert_close(sampled, trained.detach(), rtol=0.0, atol=1e-4)


def test_stage_1_ends_with_shares_of_different_size(results: list[dict[str, Any]]) -> None:
    first, second = (result["astar_po"]["values"] for result in results)
    assert first == second
    assert first[0].episodes % 2 == 1
    assert results[0]["starpo"]["evaluated"] == results[1]["starpo"]["evaluated"]


def test_trls_own_slices_of_a_servers_answer_are_wrong_for_unequal_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why `ServedEngine` does not use ``VLLMGeneration.generate``: the second process gets a row of the first."""
    chat = Chat(TOKENIZER)
    contexts = [chat.start(str(number)) for number in range(3)]
    client = FakeClient(FakeModel(small_model()))

    def generate(prompts: list[list[int]], **_: Any) -> dict[str, Any]:
        return {"prompt_ids": prompts, "completion_ids": [ids[-3:] for ids in prompts], "logprobs": None}

    monkeypatch.setattr(client, "generate", generate)
    monkeypatch.setattr(vllm_generation, "gather_object", lambda mine: contexts if mine == contexts[2:] else [None] * 3)
    monkeypatch.setattr(vllm_generation, "broadcast_object_list", lambda shared, from_process: shared)
    process = vllm_generation.VLLMGeneration.__new__(vllm_generation.VLLMGeneration)
    process.mode, process.vllm_client = "server", client
    process.accelerator = SimpleNamespace(is_main_process=True, process_index=1)
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length"):
        setattr(process, name, 1)
    process.logprobs, process.structured_outputs_regex, process.generation_kwargs = 0, None, {}
    asked, *_ = process.generate(contexts[2:], None, num_generations=1)  # the first process has the other two rows
    assert asked == [contexts[1]]
