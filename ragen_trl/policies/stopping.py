"""Where a reply has said its answer: whether the tokens sampled so far close ``</answer>``."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_END = "</answer>"


class AnswerEnd:
    """Tells from token ids whether ``</answer>`` is complete, without decoding a reply at every token.

    Only a token that holds ``>`` can complete it; then the last tokens are decoded, as many as it may be spread over
    (one a character), so the tag may be one token, several, or the beginning of a token that goes on.

    Args:
        tokenizer: Byte-level or with byte fallback, as those of all chat models: a ``>`` stands for itself in the
            token that holds it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        closing = {token for text, token in tokenizer.get_vocab().items() if _END[-1] in text}
        self._closing = closing - self._special

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens of a reply completes the tag (special tokens count as no text)."""
        if ids[-1] not in self._closing:
            return False
        tail: list[int] = []
        for token in reversed(ids):
            if token not in self._special:
                tail.append(token)
            if len(tail) == len(_END):
                break
        return _END in str(self._tokenizer.decode(tail[::-1], skip_special_tokens=True))
