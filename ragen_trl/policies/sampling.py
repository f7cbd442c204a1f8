"""How a token is drawn from logits, and what ends a reply."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase, TopKLogitsWarper, TopPLogitsWarper

from ragen_envs import END_ANSWER
from ragen_trl.config.options import check_range
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import NotFiniteError, OptionError
from ragen_trl.system.float64 import in_float64


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_tokens: Number of tokens that a reply may have, the end-of-turn token included.
        temperature: Divides the logits; 0 is greedy.
        top_k: Keep only the k most likely tokens; 0 keeps all.
        top_p: Keep only the smallest set of most likely tokens with this total probability; 1 keeps all.
        stop_at_answer: A reply also ends with the token that completes its first ``</answer>``. What a model writes
            behind it is free: nobody plays it, and without the stop it is sampled and trained on.
        never: Tokens that are never drawn. They have a log-probability, as those that top-k and top-p exclude.

    Raises:
        OptionError: If a value is out of its range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_at_answer: bool = True
    never: tuple[int, ...] = ()

    @classmethod
    def of(cls, args: StarPOConfig, temperature: float) -> "Sampling":
        """As a configuration asks for."""
        return cls(args.max_reply_length, temperature, args.top_k, args.top_p, args.stop_at_answer)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise OptionError(f"max_tokens is {self.max_tokens}; a reply needs at least 1 token")
        if self.temperature != 0:  # divided by less, logits would leave the range of float32
            check_range("temperature", self.temperature, "[1e-30, inf)")
        check_range("top_p", self.top_p, "(0, 1]")
        check_range("top_k", self.top_k, "[0, inf)")


def sample_tokens(
    logits: torch.Tensor, uniforms: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw n tokens per row by inverting the cumulative distribution.

    Args:
        logits: (b, vocabulary) next-token logits.
        uniforms: (b, n) numbers in [0, 1), float64, on `float64_device` of the logits' device.
        sampling: Temperature, top-k and top-p.

    Returns:
        (b, n) token ids and (b, n) their log-probabilities with the temperature but before top-k and top-p.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        tokens = _allowed(logits, sampling).argmax(-1, keepdim=True).expand(uniforms.shape)
        return tokens, torch.log_softmax(logits, -1).gather(-1, tokens)
    logprobs = torch.log_softmax(logits / sampling.temperature, -1)
    kept, unread = _allowed(logprobs, sampling), torch.empty(0, dtype=torch.long)
    if sampling.top_k:
        kept = TopKLogitsWarper(sampling.top_k)(unread, kept)
    if sampling.top_p < 1:
        kept = TopPLogitsWarper(sampling.top_p)(unread, kept)
    cumulative = in_float64(kept).exp_().cumsum_(-1)  # 150 000 small terms would drift in float32
    target = uniforms * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    tokens = tokens.to(logits.device)
    return tokens, logprobs.gather(-1, tokens)


def check_drawn(logprobs: Sequence[float]) -> None:
    """Raise `NotFiniteError` unless all drawn tokens have a finite log-probability.

    One NaN among a row's logits makes all of its tokens NaN, so the drawn one tells.
    """
    bad = sum(not math.isfinite(logprob) for logprob in logprobs)
    if bad:
        raise NotFiniteError(
            f"the model's logits are NaN or infinite: {bad} of {len(logprobs)} next tokens have no probability. If its "
            "weights are NaN, go back to an earlier checkpoint; otherwise compute in bf16 or float32 instead of float16"
        )


def _allowed(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    if not sampling.never:
        return logits
    return logits.index_fill(-1, torch.tensor(sampling.never, device=logits.device), -torch.inf)


class ReplyEnd:
    """Tells from token ids whether a model has ended its reply.

    A reply ends with one of ``stop_ids`` or, with ``stop_at_answer``, with the token that completes ``</answer>``. Only
    a token that contains ``>`` can complete it (the tokenizer must be byte-level or have byte fallback). Then the last
    tokens are decoded, as many as the tag may be spread over: one per character. Special tokens count as no text.

    Attributes:
        stop_ids: The tokens that end a reply.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: frozenset[int], stop_at_answer: bool) -> None:
        added = {token: text for token, text in tokenizer.added_tokens_decoder.items() if text.special}
        self.stop_ids = stop_ids
        self._tokenizer, self._special, self._closing = tokenizer, set(added), set[int]()
        if stop_at_answer:  # as a special token the tag is no text, here and for vLLM
            self.stop_ids |= {token for token, text in added.items() if text.content == END_ANSWER}
            closing = {token for text, token in tokenizer.get_vocab().items() if END_ANSWER[-1] in text}
            self._closing = closing - self._special

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends the reply."""
        if ids[-1] in self.stop_ids or ids[-1] not in self._closing:
            return ids[-1] in self.stop_ids
        tail = [token for token in ids if token not in self._special][-len(END_ANSWER) :]
        return END_ANSWER in str(self._tokenizer.decode(tail, skip_special_tokens=True))
