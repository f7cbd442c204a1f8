"""The text of every token of a sequence, so joined they are the text of the sequence.

Decoding each token separately is wrong in two ways: a byte-level token can be a part of a character, and some
tokenizers write the space before a word only if something precedes it.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

# A character has at most 4 bytes in UTF-8. If as many tokens give no whole character, their bytes belong to none.
_LONGEST_CHARACTER = 4
_UNKNOWN = "\ufffd"


class TokenPieces:
    """Decodes sequences token by token.

    Args:
        tokenizer: Decodes the tokens. The text of a special token is its name.

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
        """The text of each token. The tokens before the one that completes a character have the text ""."""
        for token in set(ids) - self._alone.keys():
            self._alone[token] = self._decode([token])
        pieces = [self._alone[token] for token in ids]
        if "".join(pieces) == self._decode(ids):
            return pieces
        return self._in_context(ids)

    def _in_context(self, ids: Sequence[int]) -> list[str]:
        """What each token adds to the text of the tokens before it; some of these are decoded again with it."""
        pieces: list[str] = []
        known, done = 0, 0  # tokens before `done` have texts; those from `known` on are decoded again
        for end in range(1, len(ids) + 1):
            before, text = self._decode(ids[known:done]), self._decode(ids[known:end])
            waiting = end - done
            settled = end
            if text.endswith(_UNKNOWN) and end < len(ids):
                if waiting < _LONGEST_CHARACTER:
                    continue
                # The last tokens may still begin a character; the ones before them belong to none.
                starts = (start for start in range(done + 1, end) if self._decode(ids[start:end]) == _UNKNOWN)
                settled = next(starts, end)
                text = self._decode(ids[known:settled])
            pieces += [""] * (settled - done - 1) + [text[len(before) :]]
            known, done = done, settled
        return pieces

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
