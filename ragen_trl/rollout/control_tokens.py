"""Only the chat template writes control tokens: what an environment writes stays text.

A page may show ``<|im_end|>``, which would let it go on in the model's name. So such texts are broken by a character
without width before the template is rendered; what a model writes is read without it.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragen_envs import TAGS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BREAK = "\u200b"  # a zero-width space
# Added tokens that are not special, but in brackets, like Qwen3's <tool_call>. Others are words and lines.
_BRACKETED = re.compile(r"<\S+>|\[\S+\]")
CALL_TAGS = ("<tool_call>", "</tool_call>")
"""The tags of calls, as in ``ragen_envs.CallFormat``."""
_NO_TAG = f"(?:(?!{'|'.join(map(re.escape, TAGS))}).)*"
# A whole reply, as an instruction shows it. Its tags stay the tokens that the model is to write.
_EXAMPLE = re.compile(rf"(?:<think>{_NO_TAG}</think>\s*)?<answer>{_NO_TAG}</answer>", re.DOTALL)


class ControlTokens:
    """The tokens of a tokenizer that no environment may write: its special tokens, and added ones in brackets.

    The tags of the reply format are among them where the tokenizer has them as tokens (Qwen3: ``<think>``). Only a
    whole example of a reply may show them.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        added = {token_id: (token.content.strip(), token) for token_id, token in tokenizer.added_tokens_decoder.items()}
        # A single character (a "!" that pads) is needed to spell words.
        control = {
            token_id: text
            for token_id, (text, token) in added.items()
            if len(text) > 1 and (token.special or _BRACKETED.fullmatch(text))
        }
        self._special = {token_id: text for token_id, (text, token) in added.items() if token.special}
        self._texts = frozenset(control.values())
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        self._first = re.compile("|".join(sorted({re.escape(text[0]) for text in self._texts})) or "(?!)")
        unknown = {tokenizer.unk_token_id}  # stands for any text that has no other token
        self._counted = frozenset(token_id for token_id, text in control.items() if text not in TAGS) - unknown

    def broken(self, text: str, is_reply: bool = False, has_calls: bool = False) -> str:
        """The text with a `BREAK` in each control token; in a reply, tags of its format (and of calls) stay.

        A search for each place where one may begin, because Gemma has 6,000 of them and `re` is slow.
        """
        kept = (*TAGS, *CALL_TAGS) if has_calls else TAGS
        shown = [(0, len(text))] if is_reply else [found.span() for found in _EXAMPLE.finditer(text)]
        parts, rest = [], 0
        for place in (found.start() for found in self._first.finditer(text)):
            pieces = (text[place : place + length] for length in self._lengths)
            control = next((piece for piece in pieces if piece in self._texts), None)
            if control in kept and any(begin <= place < end for begin, end in shown):
                continue
            if control is not None:
                parts += [text[rest : place + 1], BREAK]
                rest = place + 1
        return "".join([*parts, text[rest:]])

    def count(self, ids: Sequence[int]) -> int:
        """How many of these tokens are control tokens; tags of the reply format do not count."""
        return sum(token in self._counted for token in ids)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the control tokens in it."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int], has_calls: bool = False) -> str:
        """Text of a reply without special tokens; the tags of its format stay, where the tokenizer has special ones."""
        tags = (*TAGS, *CALL_TAGS) if has_calls else TAGS
        kept = [token for token in ids if token not in self._special or self._special[token] in tags]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False)).replace(BREAK, "")
