"""The text of every single token of a sequence, such that all of them in a row are the text of the sequence.

Decoding a token by itself is wrong in two ways: a byte-level token may be part of a character, and some tokenizers
write a word's blank only where something comes before it. Left out: where in the text a token stands; pieces add up.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

# A character has at most 4 bytes in UTF-8: more tokens than that without a whole one hold bytes that belong to none.
_LONGEST_CHARACTER = 4
_UNKNOWN = "\ufffd"


class TokenPieces:
    """Decodes sequences token by token.

    Args:
        tokenizer: The one that the tokens are of. Special tokens are texts like all others.

    Example:
        >>> from ragen_trl.policies.tiny_model import build_tiny_tokenizer
        >>> tokenizer = build_tiny_tokenizer()
        >>> TokenPieces(tokenizer).of(tokenizer.encode("né"))
        ['n', '', 'é']
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._alone: dict[int, str] = {}

    def of(self, ids: Sequence[int]) -> list[str]:
        """A text a token. The tokens before the one that completes a character have the text ""."""
        for token in set(ids) - self._alone.keys():
            self._alone[token] = self._decode([token])
        pieces = [self._alone[token] for token in ids]
        if "".join(pieces) == self._decode(ids):
            return pieces
        return self._in_context(ids)

    def _in_context(self, ids: Sequence[int]) -> list[str]:
        """What each token adds to the text of the ones before it, some of which are decoded again with it."""
        pieces: list[str] = []
        known, done = 0, 0  # tokens before `done` have their texts; from `known` on they are decoded again
        for end in range(1, len(ids) + 1):
            before, text = self._decode(ids[known:done]), self._decode(ids[known:end])
            waiting = end - done
            if text.endswith(_UNKNOWN) and waiting < _LONGEST_CHARACTER and end < len(ids):
                continue
            pieces += [""] * (waiting - 1) + [text[len(before) :]]
            known, done = done, end
        return pieces

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
