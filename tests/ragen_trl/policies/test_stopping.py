"""The end of an answer in token ids: whole, in pieces, inside a longer token, with special tokens in between."""

import itertools

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ragen_trl.policies.stopping import AnswerEnd

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
    end = AnswerEnd(tokenizer)
    return next((length for length in range(1, len(tokens) + 1) if end.reached(tokens[:length])), None)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Up", "</answer>", "x"], 2),  # one token
        (["Up", *"</answer>", "x"], 10),  # a token a character
        (["Up", "</", "answer", ">", "x"], 4),
        (["Up", "</", "answer", ">ĊĊ", "x"], 4),  # the closing bracket and two newlines are one token
        (["Up</", "answer", ">", ">"], 3),  # the tag begins inside a token
        (["Up", "</", SPECIAL, "answer", ">"], 5),  # special tokens are not part of the text
        (["Up", "</", "answer", "x", ">"], None),
        (["<", "answer", ">", "Up", ">", ">"], None),
        (["answer", ">"], None),
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
