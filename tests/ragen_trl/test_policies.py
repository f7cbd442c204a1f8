"""Policies: the kept KV cache gives what a model gives that reads everything anew, and sampling is fair.

The references are ``model.generate`` and a plain forward pass over the whole history, for three architectures (rotary
positions with one and with few key-value heads, learned positions) and both attention implementations.
"""

from functools import cache

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from ragen_trl.chat import Chat
from ragen_trl.policies import ScriptedPolicy, TransformersPolicy, UnsupportedModelError
from ragen_trl.rollout import Reply, Request, Start, play
from ragen_trl.sampling import Sampling, sample_tokens
from ragen_trl.trajectory import Trajectory
from tests.ragen_trl.chat_families import FAMILIES
from tests.ragen_trl.fake_envs import Quiz, quizzes

CHAT = Chat(FAMILIES["chatml"].tokenizer())
VOCABULARY = len(CHAT.tokenizer)
STOPS = list(range(3, VOCABULARY, 9))  # so many that replies end early, at different lengths
LENGTHS = (1, 3, 2, 4, 3)  # turns of each row: rows leave at the front, in the middle and at the back

_SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": STOPS}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**_SHAPE, num_key_value_heads=2, initializer_range=0.2),
    "llama": LlamaConfig(**_SHAPE, num_key_value_heads=1, initializer_range=0.2),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=512,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=STOPS,
    ),
}


@cache
def model_of(architecture: str, attention: str = "sdpa") -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(CONFIGS[architecture], attn_implementation=attention).eval()


def starts(count: int) -> list[Start]:
    return [Start(seed=row, sampling_seed=100 + row) for row in range(count)]


def rollout(model: PreTrainedModel, sampling: Sampling, max_length: int | None = None) -> list[Trajectory]:
    policy = TransformersPolicy(model, CHAT, sampling)
    return play(quizzes(LENGTHS), policy, starts(len(LENGTHS)), max_length)


each_model = pytest.mark.parametrize("architecture", CONFIGS)
each_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])


@each_attention
@each_model
def test_greedy_replies_are_those_of_generate_on_the_full_history(architecture: str, attention: str) -> None:
    model = model_of(architecture, attention)
    trajectories = rollout(model, Sampling(max_tokens=7, temperature=0))
    assert [len(trajectory.turns) for trajectory in trajectories] == list(LENGTHS)
    reply_lengths = set()
    for trajectory in trajectories:
        history: list[int] = []
        for turn in trajectory.turns:
            history += turn.prompt_ids
            context = torch.tensor([history])
            stops = sorted(CHAT.stop_ids(STOPS))
            output = model.generate(
                context,
                attention_mask=torch.ones_like(context),
                do_sample=False,
                max_new_tokens=7,
                eos_token_id=stops,
                pad_token_id=0,
            )
            assert output[0, len(history) :].tolist() == list(turn.reply_ids)
            history += turn.reply_ids
            reply_lengths.add(len(turn.reply_ids))
    assert len(reply_lengths) > 2  # the rows really were of different lengths


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@each_attention
@each_model
def test_logprobs_are_those_of_a_forward_pass_over_the_whole_trajectory(
    architecture: str, attention: str, temperature: float
) -> None:
    model = model_of(architecture, attention)
    for trajectory in rollout(model, Sampling(max_tokens=7, temperature=temperature)):
        ids = torch.tensor([trajectory.token_ids])
        with torch.no_grad():
            logits = model(ids).logits[0, :-1] / temperature
        full = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(trajectory.action_mask[1:]).bool()
        sampled = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
        torch.testing.assert_close(sampled, full[mask], atol=1e-4, rtol=0)


@each_model
def test_a_reply_does_not_depend_on_the_other_rows(architecture: str) -> None:
    model = model_of(architecture)
    together = rollout(model, Sampling(max_tokens=7))
    for row, env in enumerate(quizzes(LENGTHS)):
        policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=7))
        alone = play([env], policy, [starts(len(LENGTHS))[row]])[0]
        assert alone.token_ids == together[row].token_ids


def test_rows_with_one_state_and_different_dice_differ_and_the_same_dice_agree() -> None:
    policy = TransformersPolicy(model_of("qwen2"), CHAT, Sampling(max_tokens=20))
    seeds = [Start(0, sampling_seed=seed) for seed in (1, 2, 1)]
    first, second, third = play([Quiz(1), Quiz(1), Quiz(1)], policy, seeds)
    assert first.token_ids == third.token_ids
    assert first.token_ids != second.token_ids


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
    """No trajectory outgrows ``max_length`` behind its first prompt; one that has no room left ends by "context"."""
    trajectories = rollout(model_of("qwen2"), Sampling(max_tokens=30), max_length=75)
    behind = [len(trajectory.token_ids) - len(trajectory.turns[0].prompt_ids) for trajectory in trajectories]
    assert max(behind) <= 75
    ended = [trajectory.limit for trajectory in trajectories]
    assert "context" in ended
    assert all(trajectory.truncated == (trajectory.limit == "context") for trajectory in trajectories)


def test_the_context_of_the_model_is_never_exceeded() -> None:
    config = Qwen2Config(**{**_SHAPE, "max_position_embeddings": 90}, num_key_value_heads=2)
    model = AutoModelForCausalLM.from_config(config)
    trajectory = play([Quiz(9)], TransformersPolicy(model, CHAT, Sampling(max_tokens=50)), starts(1))[0]
    assert trajectory.limit == "context"
    assert len(trajectory.token_ids) <= 90


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored(training: bool) -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["gpt2"]).train(training)  # GPT-2 has dropout
    policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=3, temperature=0))
    once, again = play([Quiz(2), Quiz(2)], policy, [Start(0), Start(0)])
    assert once.token_ids == again.token_ids  # no dropout while sampling
    assert model.training is training
    policy.begin([0])
    with pytest.raises(KeyError):
        policy.reply([Request(5, "no such row", (1,), Quiz(1))])
    assert model.training is training


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (MistralConfig(**_SHAPE, num_key_value_heads=2, sliding_window=8), "sliding_attention"),
        (
            Qwen2Config(
                **_SHAPE, num_key_value_heads=2, use_sliding_window=True, sliding_window=8, max_window_layers=1
            ),
            "sliding_attention",
        ),
        (MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4), "recurrent"),
    ],
    ids=["mistral", "qwen2", "mamba"],
)
def test_models_that_do_not_attend_to_everything_are_refused(config: PretrainedConfig, layers: str) -> None:
    """Regression: a window that holds for all layers is declared in another field (Mistral, Phi-3) and was missed."""
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModelError, match=f"{config.model_type}.*{layers} layers"):
        TransformersPolicy(model, CHAT, Sampling(max_tokens=4))


def test_flash_attention_is_refused_with_the_remedy() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["llama"])
    model.config._attn_implementation_internal = "flash_attention_2"  # cannot be loaded where it is not installed
    with pytest.raises(UnsupportedModelError, match='flash_attention_2.*"attn_implementation": "sdpa"'):
        TransformersPolicy(model, CHAT, Sampling(max_tokens=4))


@pytest.mark.parametrize(
    ("values", "name"),
    [({"max_tokens": 0}, "max_tokens is 0"), ({"temperature": -1.0}, "temperature is -1.0")]
    + [({"top_p": p}, f"top_p is {p}") for p in (0.0, 1.5)]
    + [({"top_k": -1}, "top_k is -1")],
)
def test_sampling_options_out_of_range_are_named(values: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Sampling(**{"max_tokens": 1, **values})


LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf, 0.5])


def restricted(probabilities: torch.Tensor, kept: list[int]) -> torch.Tensor:
    """The distribution with all but these tokens cut away."""
    masked = torch.zeros_like(probabilities)
    masked[kept] = probabilities[kept]
    return masked / masked.sum()


# softmax(LOGITS) = .555 .204 .075 .028 0 .138: in order of probability tokens 0, 1, 5, 2, 3, sums .555 .759 .897 .972
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 2, 3, 5]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 5]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3, 5]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.7}, [0, 1]),
        ({"top_p": 0.8}, [0, 1, 5]),
        ({"top_k": 4, "top_p": 0.99}, [0, 1, 2, 5]),
    ],
)
def test_tokens_are_drawn_as_often_as_their_probability_says(options: dict[str, float], kept: list[int]) -> None:
    count = 40_000
    sampling = Sampling(max_tokens=1, **options)
    uniforms = torch.from_numpy(np.random.default_rng(0).random(count))
    tokens, logprobs = sample_tokens(LOGITS.repeat(count, 1), uniforms, sampling)
    probabilities = (LOGITS / sampling.temperature).softmax(-1)
    expected = restricted(probabilities, kept)
    found = tokens.bincount(minlength=6) / count
    four_sigma = 4 * (expected * (1 - expected) / count).sqrt()
    assert ((found - expected).abs() <= four_sigma + 1e-9).all()
    # What a trainer computes: under the temperature, but not under top-k and top-p.
    torch.testing.assert_close(logprobs, probabilities.log()[tokens])


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
def test_impossible_tokens_are_not_drawn_at_the_ends_of_the_dice(uniform: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 1.0, -torch.inf]])
    token, _ = sample_tokens(logits, torch.tensor([uniform], dtype=torch.float64), Sampling(max_tokens=1))
    assert token.item() == (1 if uniform == 0 else 2)


def test_greedy_takes_the_most_likely_token_with_its_untempered_logprob() -> None:
    token, logprob = sample_tokens(LOGITS[None], torch.zeros(1, dtype=torch.float64), Sampling(1, temperature=0))
    assert token.item() == 0
    assert logprob.item() == pytest.approx(LOGITS.log_softmax(-1)[0].item())


def test_a_script_has_dice_of_its_own_for_every_row() -> None:
    policy = ScriptedPolicy(lambda env, random: str(random.integers(10**9)))
    policy.begin([7, 8, 7])
    env = Quiz(1)
    replies = policy.reply([Request(row, "?", (), env) for row in (2, 0, 1)])
    assert replies[0] == replies[1] == Reply(str(np.random.default_rng(7).integers(10**9)))
    assert replies[2] == Reply(str(np.random.default_rng(8).integers(10**9)))


def test_a_script_with_a_chat_gives_the_tokens_of_its_replies() -> None:
    policy = ScriptedPolicy(lambda env, random: "Up", CHAT)
    policy.begin([0])
    (reply,) = policy.reply([Request(0, "?", (), Quiz(1))])
    assert reply == Reply("Up", tuple(CHAT.encode_reply("Up")))
    assert reply.logprobs == ()
