"""Only the chat template writes control tokens: what an environment writes stays text.

A page may show ``<|im_end|>``, which would let it go on in the model's name. So such texts are hidden before the
template is rendered, and a copy of the tokenizer with other names for its control tokens tokenises the result.
(``split_special_tokens`` does not do: pieces tokenised apart have other blanks and merges than a whole.)
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ragen_envs import TAGS

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_PRIVATE = "\uf51b"  # a character of Unicode's private area, which no template looks at
# Added tokens that are not special, but in brackets, like Qwen3's <tool_call>. Others are words and lines.
_BRACKETED = re.compile(r"<\S+>|\[\S+\]")
CALL_TAGS = ("<tool_call>", "</tool_call>")
"""The tags of calls, as in ``ragen_envs.CallFormat``."""
_NO_TAG = f"(?:(?!{'|'.join(map(re.escape, TAGS))}).)*"
# A whole reply, as an instruction shows it. Its tags stay the tokens that the model is to write.
_EXAMPLE = re.compile(rf"(?:<think>{_NO_TAG}</think>\s*)?<answer>{_NO_TAG}</answer>", re.DOTALL)


class ControlTokens:
    """The tokens of a tokenizer that no environment may write: its special tokens, and added ones in brackets.

    The tags of the reply format, with ``calls`` those of calls too, are among them where the tokenizer has them as
    tokens (Qwen3: ``<think>``). Only a whole example of a reply may show them.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", calls: bool = False) -> None:
        self._tokenizer = tokenizer
        self._tags = (*TAGS, *CALL_TAGS) if calls else TAGS
        added = {token_id: (token.content.strip(), token) for token_id, token in tokenizer.added_tokens_decoder.items()}
        # A single character (a "!" that pads) is needed to spell words.
        self._texts = {
            token_id: token.content
            for token_id, (text, token) in added.items()
            if len(text) > 1 and (token.special or _BRACKETED.fullmatch(text))
        }
        self._ids = {text: token_id for token_id, text in self._texts.items()}
        self._special = {token_id: text for token_id, (text, token) in added.items() if token.special}
        self._lengths = sorted({len(text) for text in self._ids}, reverse=True)
        self._first = re.compile("|".join(sorted({re.escape(text[0]) for text in self._ids})) or "(?!)")
        self._counted = {*self._texts} - {tokenizer.unk_token_id}  # which stands for any text without another token
        # Begins the name of a control token and the mark of a hidden one. Nobody can write it who does not know it.
        self._secret = _PRIVATE + secrets.token_hex(8)
        self._hidden = re.compile(f"{self._secret}h([0-9]+){_PRIVATE}")

    def hide(self, text: str, is_reply: bool = False) -> str:
        """The text with a mark instead of each control token; in a reply, tags of its format (and of calls) stay."""
        shown = [(0, len(text))] if is_reply else [found.span() for found in _EXAMPLE.finditer(text)]

        def mark(control: str, place: int) -> str:
            if control in self._tags and any(begin <= place < end for begin, end in shown):
                return control
            return f"{self._secret}h{self._ids[control]}{_PRIVATE}"

        return self._replaced(text, mark)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text with marks, in which each hidden control token is spelled.

        Where the tokenizer finds more control tokens than are written, it knows a spelling that `hide` does not
        (``＜s＞`` under NFKC): then it is not asked.
        """
        if self._secret not in text:
            ids = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
            written = sum(self._ids[control] in self._counted for _, control in self._written(text))
            if sum(token in self._counted for token in ids) == written:
                return ids
        if not self._tokenizer.is_fast:
            return list(self._spelled(text))
        shown = self._hidden.sub(lambda found: self._texts[int(found[1])], self._replaced(text, self._name))
        return list(self._renamed.encode(shown, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a reply without special tokens; the tags of its format stay, where the tokenizer has special ones."""
        kept = [token for token in ids if token not in self._special or self._special[token] in self._tags]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False))

    def _written(self, text: str) -> Iterator[tuple[int, str]]:
        """The longest control token at each place, and where it begins. Gemma has 6,000: `re` is slow."""
        rest = 0
        for found in self._first.finditer(text):
            begin = found.start()
            pieces = (text[begin : begin + length] for length in self._lengths)
            control = next((piece for piece in pieces if piece in self._ids), None) if begin >= rest else None
            if control is not None:
                yield begin, control
                rest = begin + len(control)

    def _replaced(self, text: str, new: Callable[[str, int], str]) -> str:
        """The text with others for its control tokens."""
        parts, rest = [], 0
        for begin, control in self._written(text):
            parts += [text[rest:begin], new(control, begin)]
            rest = begin + len(control)
        return "".join([*parts, text[rest:]])

    def _name(self, control: str, place: int = 0) -> str:
        return f"{self._secret}n{self._ids[control]}{_PRIVATE}"

    @cached_property
    def _renamed(self) -> "Tokenizer":
        """A copy of the Rust tokenizer in which a control token has a name that no text contains."""
        from tokenizers import Tokenizer

        content = json.loads(self._tokenizer.backend_tokenizer.to_str())
        for token in content["added_tokens"]:
            name = self._replaced(token["content"], self._name)
            token.update(content=name, normalized=token["normalized"] and name == token["content"])
        self._rename_pieces(content["model"])
        copy = Tokenizer.from_str(json.dumps(content))
        copy.no_truncation()
        copy.no_padding()
        moved = [one["content"] for one in content["added_tokens"] if copy.token_to_id(one["content"]) != one["id"]]
        if moved:
            raise RuntimeError(f"a copy of the tokenizer gives {moved} other ids; please report the tokenizer")
        return copy

    def _rename_pieces(self, model: dict[str, Any]) -> None:
        """Rename pieces of a model's vocabulary. No merge may lead to them, so no text is spelled with them."""
        names = {text: self._name(text) for text in self._ids}
        vocabulary = model["vocab"]
        if isinstance(vocabulary, dict):
            model["vocab"] = {names.get(piece, piece): number for piece, number in vocabulary.items()}
        else:
            model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
        if isinstance(model.get("unk_token"), str):
            model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        if "merges" in model:
            merges = ((merge, merge if isinstance(merge, list) else merge.split(" ")) for merge in model["merges"])
            model["merges"] = [merge for merge, pair in merges if not names.keys() & {*pair, "".join(pair)}]

    def _spelled(self, text: str) -> Iterator[int]:
        """Pieces apart, for a tokenizer in Python: what was hidden, character by character."""
        for place, piece in enumerate(self._hidden.split(text)):
            for part in self._texts[int(piece)] if place % 2 else [piece]:
                yield from self._tokenizer(part, add_special_tokens=False)["input_ids"]
