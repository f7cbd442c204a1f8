"""Policies: the kept KV cache gives what a model gives that reads everything again, whatever the rows are like.

The references are ``model.generate`` and a plain forward pass over the whole history, for several architectures (rotary
positions with many, few and one key-value head, learned positions, sliding windows that nothing outgrows) and both
attention implementations.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from ragen_trl.errors import NotFiniteError
from ragen_trl.policies import transformers as passes
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Request, Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.chat_families import FAMILIES
from tests.support.ragen_trl.fake_envs import Quiz, quizzes, starts
from tests.support.ragen_trl.trainers import both_scores

# Small random models of several architectures, what they play, and what ``generate`` says to the same history

CHAT = Chat(FAMILIES["chatml"].tokenizer())
VOCABULARY = len(CHAT.tokenizer)
STOPS = list(range(3, VOCABULARY, 9))  # so many that replies end early, at different lengths
LENGTHS = (1, 3, 2, 4, 3)  # turns of each row: rows leave at the front, in the middle and at the back

SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": STOPS}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**SHAPE, num_key_value_heads=2, initializer_range=0.2),
    "llama": LlamaConfig(**SHAPE, num_key_value_heads=1, initializer_range=0.2),
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
    "opt": OPTConfig(
        **SHAPE, ffn_dim=48, word_embed_proj_dim=32, pad_token_id=0, init_std=0.2, tie_word_embeddings=False
    ),
    "mistral": MistralConfig(**SHAPE, num_key_value_heads=4, sliding_window=512, initializer_range=0.2),
    "gemma3": Gemma3TextConfig(**SHAPE, num_key_value_heads=2, head_dim=8, sliding_window=512, initializer_range=0.2),
}


@cache
def model_of(architecture: str, attention: str = "sdpa") -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(deepcopy(CONFIGS[architecture]), attn_implementation=attention).eval()


def rollout(model: PreTrainedModel, sampling: Sampling) -> list[Trajectory]:
    return play(quizzes(LENGTHS), TransformersPolicy(model, CHAT, sampling), starts(len(LENGTHS)))


@contextmanager
def passes_of(model: PreTrainedModel, of: str = "input_ids") -> Iterator[list[torch.Size]]:
    """Shapes of the tokens, (b, n), or of another argument of every forward pass."""
    shapes: list[torch.Size] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(kwargs[of].shape), with_kwargs=True
    )
    yield shapes
    hook.remove()


def generated(model: PreTrainedModel, history: list[int], tokens: int) -> list[int]:
    """What ``model.generate`` answers to a whole history at temperature 0."""
    context = torch.tensor([history])
    output = model.generate(
        context,
        attention_mask=torch.ones_like(context),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=sorted(CHAT.stop_ids(STOPS)),
        pad_token_id=0,
    )
    found: list[int] = output[0, len(history) :].tolist()
    return found


each_model = pytest.mark.parametrize("architecture", CONFIGS)
each_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])


@each_attention
@each_model
def test_greedy_replies_are_those_of_generate_on_the_full_history(architecture: str, attention: str) -> None:
    model = model_of(architecture, attention)
    trajectories = rollout(model, Sampling(max_tokens=7, temperature=0))
    assert [len(trajectory.turns) for trajectory in trajectories] == list(LENGTHS)
    for trajectory in trajectories:
        history: list[int] = []
        for turn in trajectory.turns:
            history += turn.prompt_ids
            assert generated(model, history, 7) == list(turn.reply_ids)
            history += turn.reply_ids
    assert len({len(turn.reply_ids) for trajectory in trajectories for turn in trajectory.turns}) > 1


@each_attention
@each_model
def test_logprobs_are_those_of_a_forward_pass_over_the_whole_trajectory(architecture: str, attention: str) -> None:
    model = model_of(architecture, attention)
    for trajectory in rollout(model, Sampling(max_tokens=7, temperature=0.7)):
        torch.testing.assert_close(*both_scores(model, trajectory, 0.7), atol=1e-4, rtol=0)


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


def test_a_model_whose_weights_are_nan_is_no_bad_player() -> None:
    """It was evaluated as one: 0 % success, with the last token of the vocabulary as every reply."""
    model = deepcopy(model_of("llama"))
    with torch.no_grad():
        model.lm_head.weight[7] = torch.nan
    with pytest.raises(NotFiniteError, match="logits are NaN or infinite"):
        rollout(model, Sampling(max_tokens=7))


# Rows in one batch: none sees another, groups read their prompt once, a long page costs the others nothing


@pytest.mark.parametrize(("tokens", "mask"), [(64, 2**30), (2**30, 64 * 200)])
def test_passes_are_bounded_and_replies_are_those_of_unbounded_ones(
    monkeypatch: pytest.MonkeyPatch, tokens: int, mask: int
) -> None:
    """Rows of many lengths and one much longer than the bound, over two turns."""
    model = model_of("qwen2")
    found, sizes, masks = [], [], []
    for bounds in ((2**30, 2**40), (tokens, mask)):
        monkeypatch.setattr(passes, "MOST_TOKENS", bounds[0])
        monkeypatch.setattr(passes, "MOST_OF_A_MASK", bounds[1])
        envs = [Quiz(2, padding=180 if row == 2 else 4 * row) for row in range(9)]
        with passes_of(model) as shapes, passes_of(model, "attention_mask") as seen:
            found.append(play(envs, TransformersPolicy(model, CHAT, Sampling(5)), starts(9)))
        sizes.append(max(shape.numel() for shape in shapes))
        masks.append(max(shape.numel() for shape in seen))
    assert sizes[0] > 3 * 64 and masks[0] > 3 * 64 * 200
    assert sizes[1] <= tokens and masks[1] <= mask
    for whole, pieces in zip(*found, strict=True):
        assert whole.token_ids == pieces.token_ids
        for one, other in zip(whole.turns, pieces.turns, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_reply_may_end_with_its_answer() -> None:
    """The closing tag is tokens of single characters here; end-of-turn comes from the chat and is not trained."""
    model, tag = model_of("qwen2"), CHAT.tokenizer.encode("</answer>", add_special_tokens=False)
    assert len(tag) == 9
    script = [*CHAT.tokenizer.encode("Up", add_special_tokens=False), *tag, 65, 65, 65, 65]
    never = Chat(FAMILIES["chatml"].tokenizer())
    never.stop_ids = lambda declared: frozenset({CHAT.end_of_turn_id})  # type: ignore[method-assign, arg-type]

    def speak(module: object, args: object, output: torch.Tensor) -> torch.Tensor:
        """Only the token whose turn it is can be drawn."""
        forced = torch.full_like(output, -torch.inf)
        forced[..., script[len(policy._rows[0].ids)]] = 0.0
        return forced

    found = {}
    for stop_at_answer in (False, True):
        policy = TransformersPolicy(model, never, Sampling(15, stop_at_answer=stop_at_answer))
        hook = model.lm_head.register_forward_hook(speak)
        found[stop_at_answer] = play([Quiz(2)], policy, starts(1))[0]
        hook.remove()
    assert [(len(turn.reply_ids), turn.cut) for turn in found[True].turns] == [(11, False)] * 2
    assert [(len(turn.reply_ids), turn.cut) for turn in found[False].turns] == [(15, True)] * 2
    assert found[True].turns[0].reply == "Up</answer>"
    assert found[True].turns[1].prompt_ids[0] == CHAT.end_of_turn_id
    assert sum(found[True].action_mask) == 22


def test_a_group_reads_its_first_prompt_once() -> None:
    model = model_of("qwen2")
    begin = [Start(0, sampling_seed=seed) for seed in range(8)]
    policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=6))
    with passes_of(model) as shapes:
        together = play([Quiz(2) for _ in begin], policy, begin)
    assert shapes[0] == (1, len(together[0].turns[0].prompt_ids))
    assert len({episode.token_ids for episode in together}) > 4  # each has its own dice
    for start, episode in zip(begin, together, strict=True):
        (alone,) = play([Quiz(2)], TransformersPolicy(model, CHAT, Sampling(max_tokens=6)), [start])
        assert alone.token_ids == episode.token_ids


def whole_pass(model: PreTrainedModel, ids: list[int], count: int) -> list[float]:
    """Log-probabilities of the last tokens, so many of them, by one pass over all."""
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [logprobs[place - 1, ids[place]].item() for place in range(len(ids) - count, len(ids))]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_rows_do_they_are_sampled_from_their_own_tokens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows join, wait, leave, have a context built again or room for a token, in passes of any size."""
    chance = random.Random(seed)
    model = model_of(chance.choice(["qwen2", "llama", "gpt2"]))
    policy = TransformersPolicy(model, CHAT, Sampling(chance.choice([1, 2, 5, 9]), top_k=chance.choice([1, 2, 3])))
    monkeypatch.setattr(policy, "_pass_tokens", chance.choice([0, 1, 3, 32, 512]))
    monkeypatch.setattr(passes, "MOST_TOKENS", chance.choice([3, 8, 4096]))
    count, begin = chance.randint(2, 10), [chance.randrange(3, 60) for _ in range(chance.choice([1, 6, 20]))]
    policy.begin([chance.randint(0, 3) for _ in range(count)])
    contexts: dict[int, list[int]] = {}
    playing = set(range(count))
    for _ in range(5):
        requests = []
        for row in (row for row in chance.sample(sorted(playing), len(playing)) if chance.random() < 0.75):
            again = tuple(begin[: chance.randint(1, len(begin))]) if chance.random() < 0.2 else None
            new = [chance.choice([1, 2]) for _ in range(chance.choice([1, 1, 2, 4]))]
            new = new if row in contexts else begin + new
            contexts[row] = [*(contexts.get(row, []) if again is None else again), *new]
            room = chance.choice([None, None, 1, 7])
            requests.append(Request(row, "", tuple(new), Quiz(1), room, again))
        for request, reply in zip(requests, policy.reply(requests), strict=True):
            ids = contexts[request.row]
            ids += reply.ids
            assert reply.logprobs == pytest.approx(whole_pass(model, ids, len(reply.ids)), abs=1e-4)
        gone = [row for row in sorted(playing) if chance.random() < 0.15]
        policy.end(gone)
        playing -= set(gone)
