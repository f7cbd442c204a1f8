"""Thoughts and likeness of replies, by hand; what the mutual information with prompts reads."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ragen_trl.monitoring import mutual_information
from ragen_trl.monitoring.collapse_monitor import rollout_measures
from ragen_trl.monitoring.mutual_information import (
    ThoughtPair,
    measured_dependence,
    prompt_dependence,
    thought_logprobs,
    thought_pair,
)
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import TOKENIZER, rollout_of, small_model


def turn(reply: str, *actions: str) -> Turn:
    return Turn((1,), tuple(TOKENIZER.encode(reply)), (), "?", reply, 0.0, {"actions": actions})


@pytest.mark.parametrize(
    ("pieces", "opened", "span"),
    [
        (["<think>", "a", "b", "</think>", "<answer>"], False, (1, 3)),
        (["a", "b", "</think>", "<answer>"], True, (0, 2)),
        (["a", "b"], True, (0, 2)),  # cut
        (["<think>", "a"], False, (1, 2)),
        (["<th", "ink>", "a", "</", "think>"], False, (2, 3)),
        (["<think>a", "b", "c</think>"], False, (1, 2)),  # tokens with a part of a tag are not of the thought
        (["<think>", "</think>", "a"], False, (0, 0)),
        (["a", "<answer>"], False, None),
        ([], True, (0, 0)),
    ],
)
def test_a_thought_is_what_stands_between_its_tags(
    pieces: list[str], opened: bool, span: tuple[int, int] | None
) -> None:
    texts = [*pieces, "Go. <think>\n" if opened else "Go."]  # the last token is the prompt
    reply = tuple(range(len(pieces)))
    first, last = span or (0, len(pieces))
    expected = ThoughtPair((len(pieces), *reply[:first]), reply[first:last])
    assert thought_pair((len(pieces),), reply, texts.__getitem__) == expected


def test_the_echo_is_within_groups() -> None:
    up, down, words = turn("a", "Up"), turn("b", "Down"), turn("c", "Up")
    alike = [up, up, up, words]  # 3 of 6 pairs say the same
    unlike = [up, down, up, down]  # 2 of 6
    played = [Trajectory((one,), seed=0) for one in alike + unlike]
    found = rollout_measures(rollout_of(played, 4))
    assert found["actions_per_turn"] == 1.0
    assert found["identical_replies"] == pytest.approx((3 / 6 + 2 / 6) / 2)
    assert "identical_replies" not in rollout_measures(rollout_of(played, 1))


# The mutual information of thoughts and prompts


def mistral() -> PreTrainedModel:
    """A small random model that sees four tokens back."""
    shape = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 4}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("mistral", **shape), dtype=torch.float32)


@pytest.mark.parametrize("make", [small_model, mistral])
def test_a_prompt_read_once_scores_like_prompt_and_thought_together(make: Any) -> None:
    """Contract with transformers: a filled cache can be repeated over a batch."""
    model = make().eval()
    prompt, thoughts = (5, 6, 7, 8), [(9,), (10, 11, 12), (13, 14), (9, 9, 9, 9, 9)]
    found = thought_logprobs(model, prompt, thoughts, temperature=0.7)
    for place, thought in enumerate(thoughts):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *thought]])).logits[0].float() / 0.7
        logprobs = logits.log_softmax(dim=1)
        alone = sum(logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(thought))
        assert found[place].item() == pytest.approx(alone, abs=1e-4)


def test_a_thought_that_comes_several_times_is_scored_once_and_counts_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = [ThoughtPair((5, 6), (8, 9)), ThoughtPair((7,), (8, 9)), ThoughtPair((5, 7), (10,))]
    scored: list[list[tuple[int, ...]]] = []
    score = mutual_information.thought_logprobs

    def counted(model: Any, prompt: Any, thoughts: list[tuple[int, ...]], *others: Any, **named: Any) -> torch.Tensor:
        scored.append(thoughts)
        return score(model, prompt, thoughts, *others, **named)

    monkeypatch.setattr(mutual_information, "thought_logprobs", counted)
    model = small_model().train()
    found = measured_dependence(model, pairs, 64)
    assert model.training  # left in its mode
    assert scored == [[(8, 9), (10,)]] * 3
    thoughts = [pair.thought for pair in pairs]
    logprobs = torch.stack([score(model, pair.prompt, thoughts) for pair in pairs], dim=1)
    expected = prompt_dependence(logprobs, torch.tensor([2, 2, 1]), torch.arange(3))
    assert found == pytest.approx(expected, abs=1e-5)
