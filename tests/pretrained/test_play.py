"""The model as it was downloaded, played by this package, against ``generate`` and a pass over the whole text."""

from collections.abc import Sequence

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ragen_trl import StarPOConfig
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Request, Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.fake_envs import Quiz
from tests.support.ragen_trl.pretrained import SHORT
from tests.support.ragen_trl.trainers import both_scores


def played(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, env: str, think: bool) -> Sequence[Trajectory]:
    args = StarPOConfig(output_dir="unused", **{**SHORT, "think": think, "max_reply_length": 16})
    turns = [make_turns(env, args) for _ in range(2)]
    policy = TransformersPolicy(model, make_chat(tokenizer, turns[0], args), Sampling(16, 0.7))
    return play(turns, policy, [Start(seed, sampling_seed=seed) for seed in range(2)])


@pytest.mark.parametrize(("env", "think"), [("ragen/FrozenLake-v0", False), ("ragen/ToyShop-v0", True)])
def test_sampled_tokens_have_the_log_probabilities_of_one_pass_and_read_as_the_conversation(
    env: str, think: bool, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Two turns with a kept cache, of rows of different lengths, at temperature 0.7."""
    for trajectory in played(model, tokenizer, env, think):
        assert len(trajectory.turns) == 2
        found, expected = both_scores(model, trajectory, 0.7)
        assert (found - expected).abs().max() < 1e-3
        messages = []
        for turn in trajectory.turns:
            messages += [{"role": "user", "content": turn.observation}, {"role": "assistant", "content": turn.reply}]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
        assert rendered.startswith(tokenizer.decode(trajectory.token_ids))


def test_greedy_replies_are_those_of_generate(model: PreTrainedModel, chat: Chat) -> None:
    """Also for rows of different lengths side by side, and where a reply ends by itself."""
    questions = ["What is the capital of France?", "Write a long poem about ice.", "Is 2 + 2 = 4? Answer yes or no."]
    policy = TransformersPolicy(model, chat, Sampling(12, 0.0))
    policy.begin([0, 1, 2])
    prompts = [chat.start(question) for question in questions]
    replies = policy.reply(
        [
            Request(row, question, tuple(ids), Quiz(1))
            for row, (question, ids) in enumerate(zip(questions, prompts, strict=True))
        ]
    )
    for ids, reply in zip(prompts, replies, strict=True):
        made = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=12)[0, len(ids) :].tolist()
        assert list(reply.ids) == made
        assert reply.cut == (made[-1] != 2)
    assert "Paris" in replies[0].text and not replies[0].cut
    assert replies[1].cut
