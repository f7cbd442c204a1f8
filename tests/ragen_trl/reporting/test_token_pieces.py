"""Tokens by themselves: their texts in a row are the text, whatever they are parts of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ragen_trl.reporting.token_pieces import TokenPieces
from tests.support.ragen_trl.trainers import TOKENIZER


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """As SentencePiece's: a word's blank belongs to its token and is not written at the beginning of a text."""
    words = {word: number for number, word in enumerate(["▁one", "▁two", "s", "<unk>"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def test_the_last_token_of_a_character_has_it() -> None:
    ids = TOKENIZER.encode("né日")
    assert [TOKENIZER.decode([token]) for token in ids].count("\ufffd") == 5
    assert TokenPieces(TOKENIZER).of(ids) == ["n", "", "é", "", "", "日"]


def test_a_blank_is_written_where_something_comes_before_it() -> None:
    pieces = TokenPieces(metaspace_tokenizer())
    assert pieces.of([0, 1, 2, 0]) == ["one", " two", "s", " one"]
    assert pieces.of([1]) == ["two"]


def test_special_tokens_are_texts() -> None:
    ids = [*TOKENIZER.encode("ok"), TOKENIZER.eos_token_id]
    assert TokenPieces(TOKENIZER).of(ids) == ["o", "k", TOKENIZER.eos_token]


def test_bytes_of_no_character_do_not_hold_up_the_rest() -> None:
    half = TOKENIZER.encode("日")[:1]
    ids = half * 9 + TOKENIZER.encode("ok")
    pieces = TokenPieces(TOKENIZER).of(ids)
    assert "".join(pieces) == TOKENIZER.decode(ids) == "\ufffd" * 9 + "ok"
    assert pieces[-2:] == ["o", "k"]


def test_a_character_may_begin_right_after_bytes_of_none() -> None:
    """Regression: the first byte of "é" was taken for one more byte of no character, and "é" was lost."""
    broken, first = TOKENIZER.encode("日")[1:2], TOKENIZER.encode("é")
    ids = broken * 3 + first
    assert TokenPieces(TOKENIZER).of(ids) == ["", "", "\ufffd" * 3, "", "é"]


@pytest.mark.parametrize("ids", [[], TOKENIZER.encode("日")[:2]])
def test_the_end_may_come_anywhere(ids: list[int]) -> None:
    pieces = TokenPieces(TOKENIZER).of(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TOKENIZER.decode(ids)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=12))
def test_pieces_add_up_to_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text)
    pieces = TokenPieces(TOKENIZER).of(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TOKENIZER.decode(ids, clean_up_tokenization_spaces=False)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=12))
def test_any_tokens_add_up_to_their_text(ids: list[int]) -> None:
    """A model may sample bytes in any order."""
    assert "".join(TokenPieces(TOKENIZER).of(ids)) == TOKENIZER.decode(ids, clean_up_tokenization_spaces=False)
