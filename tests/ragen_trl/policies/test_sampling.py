"""Drawing tokens: as often as their probability says, and with the log-probability that a trainer computes."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ragen_trl.errors import NotFiniteError
from ragen_trl.policies.sampling import ReplyEnd, Sampling, check_drawn, sample_tokens

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
    tokens, logprobs = (drawn[0] for drawn in sample_tokens(LOGITS[None], uniforms[None], sampling))
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
    token, _ = sample_tokens(logits, torch.tensor([[uniform]], dtype=torch.float64), Sampling(max_tokens=1))
    assert token.item() == (1 if uniform == 0 else 2)


def test_greedy_takes_the_most_likely_token_with_its_untempered_logprob() -> None:
    token, logprob = sample_tokens(LOGITS[None], torch.zeros(1, 1, dtype=torch.float64), Sampling(1, temperature=0))
    assert token.item() == 0
    assert logprob.item() == pytest.approx(LOGITS.log_softmax(-1)[0].item())


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0}, {"never": (2,)}])
def test_the_drawn_token_tells_of_any_logit_that_is_not_finite(options: dict[str, Any], broken: float) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, broken, 3.0]])
    uniforms = torch.full((2, 1), 0.3, dtype=torch.float64)
    _, logprobs = sample_tokens(logits, uniforms, Sampling(max_tokens=1, **options))
    check_drawn(logprobs[0].tolist())
    with pytest.raises(NotFiniteError, match="logits are NaN or infinite: 1 of 2 next tokens.*earlier checkpoint"):
        check_drawn(logprobs[:, 0].tolist())
    check_drawn(sample_tokens(LOGITS[None], uniforms[:1], Sampling(1, temperature=1e-30))[1][0].tolist())


# The end of an answer in token ids: whole, in pieces, inside a longer token, with special tokens in between

SPECIAL = "<|im_end|>"


def pieces(vocabulary: list[str], added: list[str] = []) -> PreTrainedTokenizerFast:  # noqa: B006
    """A byte-level tokenizer with these tokens, all bytes and one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {text: token for token, text in enumerate([*alphabet, *vocabulary])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    tokenizer.add_special_tokens([AddedToken(SPECIAL, normalized=False, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def ids(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[int]:
    found = [tokenizer.convert_tokens_to_ids(text) for text in texts]
    assert None not in found
    return found


def first_end(tokenizer: PreTrainedTokenizerFast, tokens: list[int]) -> int | None:
    """How many tokens it takes until the answer is over."""
    end = ReplyEnd(tokenizer, frozenset(), True)
    return next((length for length in range(1, len(tokens) + 1) if end.reached(tokens[:length])), None)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Up", "</answer>", "x"], 2),  # one token
        (["Up", *"</answer>", "x"], 10),  # a token a character
        (["Up", "</", "answer", ">ĊĊ", "x"], 4),  # the closing bracket and two newlines are one token
        (["Up</", "answer", ">", ">"], 3),  # the tag begins inside a token
        (["Up", "</", SPECIAL, "answer", ">"], 5),  # special tokens are not part of the text
        (["Up", "</", "answer", "x", ">"], None),
    ],
    ids=itertools.count(),
)
def test_the_answer_ends_with_the_token_that_completes_the_tag(texts: list[str], expected: int | None) -> None:
    tokenizer = pieces(["Up", "</", "answer", ">ĊĊ", "Up</"], added=["</answer>"])
    assert first_end(tokenizer, ids(tokenizer, texts)) == expected


def test_it_says_what_decoding_everything_at_every_token_says() -> None:
    tokenizer = pieces(["</", "answer", ">Ċ", "r>", "swer", "an", "</an"], added=["</answer>"])
    some = ids(tokenizer, ["</", "answer", ">", ">Ċ", "r>", "swer", "an", "</an", "<", "/", "s", "w", "e", SPECIAL])
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(3000):
        tokens = random.choice(some, size=8).tolist()
        decoded = (tokenizer.decode(tokens[:length], skip_special_tokens=True) for length in range(1, 9))
        expected = next((length for length, text in enumerate(decoded, 1) if "</answer>" in text), None)
        assert first_end(tokenizer, tokens) == expected
        ended += expected is not None
    assert ended > 20
