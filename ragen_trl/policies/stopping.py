"""What ends a reply of a language model: a token that closes the turn, or the token that completes ``</answer>``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ragen_trl.rollout.control_tokens import END_ANSWER

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


class ReplyEnd:
    """Tells whether a model has ended its reply.

    A reply ends with the template's end-of-turn token, the tokenizer's end-of-sequence token, a token that the model's
    generation config names or, with ``stop_at_answer``, the token that completes ``</answer>``.

    Attributes:
        stop_ids: The tokens that end a reply.
    """

    def __init__(self, chat: "Chat", model: PreTrainedModel, stop_at_answer: bool) -> None:
        self.stop_ids = chat.stop_ids(model.generation_config.eos_token_id)
        self._answer_end = AnswerEnd(chat.tokenizer) if stop_at_answer else None
        if stop_at_answer:  # as a special token it is no text, for `AnswerEnd` and for vLLM
            added = chat.tokenizer.added_tokens_decoder
            self.stop_ids |= {id_ for id_, token in added.items() if token.special and token.content == END_ANSWER}

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends the reply."""
        return ids[-1] in self.stop_ids or (self._answer_end is not None and self._answer_end.reached(ids))


class AnswerEnd:
    """Tells from token ids whether ``</answer>`` is complete, without decoding the reply at every token.

    Only a token that contains ``>`` can complete it (the tokenizer must be byte-level or have byte fallback). Then the
    last tokens are decoded, as many as the tag may be spread over: one per character.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        closing = {token for text, token in tokenizer.get_vocab().items() if END_ANSWER[-1] in text}
        self._closing = closing - self._special

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens of a reply completes the tag. Special tokens count as no text."""
        if ids[-1] not in self._closing:
            return False
        tail: list[int] = []
        for token in reversed(ids):
            if token not in self._special:
                tail.append(token)
            if len(tail) == len(END_ANSWER):
                break
        return END_ANSWER in str(self._tokenizer.decode(tail[::-1], skip_special_tokens=True))
