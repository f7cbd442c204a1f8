"""Policies: the kept KV cache gives what a model gives that reads everything again, whatever the rows are like.

The references are ``model.generate`` and a plain forward pass over the whole history, for several architectures (rotary
positions with many, few and one key-value head, learned positions, sliding windows that nothing outgrows) and both
attention implementations.
"""

from copy import deepcopy
from functools import partial

import pytest
import torch

from ragen_trl.errors import NotFiniteError
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Reply, Request
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import (
    CHAT,
    CONFIGS,
    LENGTHS,
    STOPS,
    check_greedy,
    model_of,
    rollout,
    starts,
)
from tests.support.ragen_trl.fake_envs import Quiz, quizzes

each_model = pytest.mark.parametrize("architecture", CONFIGS)
each_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])


@each_attention
@each_model
def test_greedy_replies_are_those_of_generate_on_the_full_history(architecture: str, attention: str) -> None:
    model = model_of(architecture, attention)
    trajectories = rollout(model, Sampling(max_tokens=7, temperature=0))
    assert [len(trajectory.turns) for trajectory in trajectories] == list(LENGTHS)
    assert len(check_greedy(model, trajectories, 7)) > 1  # the rows really were of different lengths


@each_attention
@each_model
def test_logprobs_are_those_of_a_forward_pass_over_the_whole_trajectory(architecture: str, attention: str) -> None:
    model = model_of(architecture, attention)
    for trajectory in rollout(model, Sampling(max_tokens=7, temperature=0.7)):
        ids = torch.tensor([trajectory.token_ids])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1] / 0.7
        full = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(trajectory.action_mask[1:]).bool()
        sampled = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
        torch.testing.assert_close(sampled, full[mask], atol=1e-4, rtol=0)


# Worst case of Qwen2, Llama, GPT-2 and OPT: 0.026 and 0.003 nats. SDPA rounds sums of another order; eager is exact.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
@each_attention
def test_under_autocast_logprobs_are_those_of_a_whole_pass_up_to_rounding(
    attention: str, dtype: torch.dtype, tolerance: float
) -> None:
    model = model_of("qwen2", attention)
    autocast = partial(torch.autocast, "cpu", dtype=dtype)
    policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=7, temperature=0), autocast)
    for trajectory in play(quizzes(LENGTHS), policy, starts(len(LENGTHS))):
        ids = torch.tensor([trajectory.token_ids])
        with torch.no_grad(), autocast():
            full = torch.log_softmax(model(ids).logits[0, :-1].float(), -1)
        mask = torch.tensor(trajectory.action_mask[1:]).bool()
        sampled = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
        of_whole_pass = full.gather(-1, ids[0, 1:, None])[:, 0][mask]
        torch.testing.assert_close(sampled, of_whole_pass, atol=tolerance, rtol=0)
        assert (full.max(-1).values[mask] - of_whole_pass).max() <= tolerance  # greedy, for the whole pass, too


def test_a_reply_ends_at_its_first_stop_token_or_is_cut() -> None:
    stops = CHAT.stop_ids(STOPS)
    turns = [turn for trajectory in rollout(model_of("qwen2"), Sampling(max_tokens=4)) for turn in trajectory.turns]
    assert {turn.cut for turn in turns} == {True, False}
    for turn in turns:
        assert not stops & set(turn.reply_ids[:-1])
        assert turn.cut == (turn.reply_ids[-1] not in stops)
        assert len(turn.reply_ids) == 4 or not turn.cut
        assert len(turn.reply_ids) <= 4


def test_the_budget_of_a_trajectory_cuts_replies_and_then_ends_it() -> None:
    """No trajectory outgrows ``max_length`` after its first prompt; one that has no room left ends by "context"."""
    trajectories = rollout(model_of("qwen2"), Sampling(max_tokens=30), max_length=75)
    lengths = [len(trajectory.token_ids) - len(trajectory.turns[0].prompt_ids) for trajectory in trajectories]
    assert max(lengths) <= 75
    ended = [trajectory.limit for trajectory in trajectories]
    assert "context" in ended
    assert all(trajectory.truncated == (trajectory.limit == "context") for trajectory in trajectories)


def test_a_model_whose_weights_are_nan_is_no_bad_player() -> None:
    """It was evaluated as one: 0 % success, with the last token of the vocabulary as every reply."""
    model = deepcopy(model_of("llama"))
    with torch.no_grad():
        model.lm_head.weight[7] = torch.nan
    with pytest.raises(NotFiniteError, match="logits are NaN or infinite"):
        rollout(model, Sampling(max_tokens=7))


def test_a_script_with_a_chat_gives_the_tokens_of_its_replies() -> None:
    policy = ScriptedPolicy(lambda env, random: "Up", CHAT)
    policy.begin([0])
    (reply,) = policy.reply([Request(0, "?", (), Quiz(1))])
    assert reply == Reply("Up", tuple(CHAT.encode_reply("Up")))
    assert reply.logprobs == ()
