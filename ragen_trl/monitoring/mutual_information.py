"""How much a thought depends on its prompt: RAGEN-2's mutual information and retrieval accuracy (arXiv 2604.06268).

A model whose thoughts are the same for every prompt has collapsed into a template, even if its entropy is high. For
prompts X_1 … X_P and thoughts Z_i, each sampled from one of them, score every thought after every prompt,
``L_ij = Σ_t log p(Z_i,t | X_j, Z_i,<t)``. Then

    matched_i = L_i,own(i) / |Z_i|        marginal_i = (1 / |Z_i|) ln (1/P) Σ_j exp L_ij
    MI = mean_i (matched_i - marginal_i)        retrieval accuracy = P(argmax_j L_ij = own(i))

This is the paper's equation, with whole-sequence probabilities. RAGEN's code averages over tokens before the logarithm
of the sum, which is another number.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ragen_envs import END_THINK, THINK
from ragen_trl.policies.model_calls import cache_name, unwrapped
from ragen_trl.system.float64 import in_float64
from ragen_trl.trajectory import end_of_thought

_TAG_TOKENS = 8  # a tag at the end of a prompt has at most so many tokens


class ThoughtPair(NamedTuple):
    """A prompt and the thought after it, as token ids; X ends where the thought begins."""

    prompt: tuple[int, ...]
    thought: tuple[int, ...]


def thought_pair(prompt: Sequence[int], reply: Sequence[int], text_of: Callable[[int], str]) -> ThoughtPair:
    """A prompt and the thought after it, which the prompt or a template may have opened; without one, the whole reply.

    ``text_of`` decodes a token; tags are ASCII, so they can be found in the joined texts. A token that holds a part of
    a tag is not part of the thought. A thought without an end tag ends with the last token.
    """
    pieces = [text_of(token) for token in reply]
    said = "".join(pieces)
    before, closed, _ = said.partition(END_THINK)
    opened = "".join(map(text_of, prompt[-_TAG_TOKENS:])).rstrip().endswith(THINK)
    if opened or (closed and THINK not in before):
        start = 0
    elif THINK in said:
        start = said.index(THINK) + len(THINK)
    else:
        return ThoughtPair(tuple(prompt), tuple(reply))
    end = end_of_thought(said, start)
    end = len(said) if end < 0 else end
    places = accumulate(map(len, pieces))  # where each token ends
    spans = enumerate(zip(pieces, places, strict=True))
    inside = [index for index, (piece, place) in spans if start <= place - len(piece) and place <= end]
    first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
    return ThoughtPair((*prompt, *reply[:first]), tuple(reply[first:last]))


def prompt_dependence(logprobs: torch.Tensor, lengths: torch.Tensor, own: torch.Tensor) -> dict[str, float]:
    """Mutual information and retrieval accuracy from scored pairs.

    Args:
        logprobs: (N, P) L, log-probability of each whole thought after each of the different prompts, nats.
        lengths: (N,) tokens of each thought, at least 1.
        own: (N,) index of the prompt that each was sampled from.

    Returns:
        ``mi`` in nats per token, ``mi_sequence`` in nats per thought, and its upper bound ``mi_bound``, ln P;
        ``mi_retrieval``, in which a tie of k prompts counts 1 / k, and ``mi_chance``, 1 / P;
        ``mi_conditional_entropy``, H(Z|X), and ``mi_marginal_entropy``, H(Z), in nats per thought.

    Example:
        >>> apart = torch.tensor([[-1.0, -9.0], [-9.0, -1.0]])
        >>> found = prompt_dependence(apart, torch.tensor([2, 2]), torch.tensor([0, 1]))
        >>> round(found["mi_sequence"], 3), round(found["mi_bound"], 3), found["mi_retrieval"]
        (0.693, 0.693, 1.0)
    """
    prompts = logprobs.shape[1]
    scores, lengths = in_float64(logprobs), in_float64(lengths)
    own = own.to(scores.device)[:, None]
    matched = scores.gather(1, own)[:, 0]  # (N,)
    marginal = scores.logsumexp(dim=1) - math.log(prompts)
    best = scores.amax(dim=1, keepdim=True)
    ties = scores >= best - 1e-9 * best.abs()  # (N, P)
    return {
        "mi": ((matched - marginal) / lengths).mean().item(),
        "mi_sequence": (matched - marginal).mean().item(),
        "mi_bound": math.log(prompts),
        "mi_retrieval": (ties.gather(1, own)[:, 0] / ties.sum(dim=1)).mean().item(),
        "mi_chance": 1 / prompts,
        "mi_conditional_entropy": -matched.mean().item(),
        "mi_marginal_entropy": -marginal.mean().item(),
    }


def chosen_pairs(pairs: Sequence[ThoughtPair], count: int) -> list[ThoughtPair]:
    """At most ``count`` pairs with thoughts: first one of each prompt, so as many as possible differ, then a second.

    Example:
        >>> a, b = ThoughtPair((1,), (5,)), ThoughtPair((2,), (6,))
        >>> chosen_pairs([a, a, b, b], 3) == [a, b, a]
        True
    """
    seen: Counter[tuple[int, ...]] = Counter()
    ranked = []
    for pair in pairs:
        if pair.thought:
            ranked.append((seen[pair.prompt], pair))
            seen[pair.prompt] += 1
    return [pair for _, pair in sorted(ranked, key=lambda each: each[0])[:count]]


@torch.no_grad()
def thought_logprobs(
    model: PreTrainedModel, prompt: Sequence[int], thoughts: Sequence[Sequence[int]], temperature: float = 1.0
) -> torch.Tensor:
    """(N,) nats, float32, on the CPU: every thought scored after one prompt, log p(Z_i | X), a column of L.

    The prompt is read once and its cache repeated for all thoughts. The ``temperature`` divides the logits, as when the
    thoughts were sampled. The model must not have a recurrent state, which cannot be repeated.
    """
    cached = cache_name(type(unwrapped(model)))
    shown = torch.tensor([list(prompt)], device=model.device)
    read = model(input_ids=shown, use_cache=True, logits_to_keep=1)
    cache = getattr(read, cached)
    cache.batch_repeat_interleave(len(thoughts))
    said = pad_sequence([torch.tensor(thought) for thought in thoughts], batch_first=True).to(model.device)  # (N, n)
    lengths = torch.tensor([[len(thought)] for thought in thoughts], device=model.device)  # (N, 1)
    mask = torch.arange(said.shape[1], device=model.device) < lengths
    seen = torch.cat([torch.ones_like(shown).expand(len(thoughts), -1), mask.long()], dim=1)
    more = model(input_ids=said, attention_mask=seen, use_cache=True, **{cached: cache}).logits[:, :-1]
    logits = torch.cat([read.logits.expand(len(thoughts), 1, -1), more], dim=1).float() / temperature  # (N, n, V)
    logprobs = logits.gather(2, said[:, :, None])[:, :, 0] - logits.logsumexp(dim=2)
    return (logprobs * mask).sum(dim=1).cpu()


def measured_dependence(
    model: PreTrainedModel, pairs: Sequence[ThoughtPair], count: int, temperature: float = 1.0
) -> dict[str, float] | None:
    """The mutual information of a rollout; ``None`` for fewer than two different prompts, or a recurrent model.

    Every process must call it with its own pairs, scores its share and gets the same result. At most ``count`` pairs of
    all processes are scored, at the ``temperature`` of sampling; the unwrapped model returns to its own mode.
    """
    pairs = chosen_pairs(gather_object(chosen_pairs(pairs, count)), count)
    prompts = list(dict.fromkeys(pair.prompt for pair in pairs))
    different = list(dict.fromkeys(pair.thought for pair in pairs))
    if len(prompts) < 2 or unwrapped(model)._is_stateful:
        return None
    training, state = model.training, PartialState()
    model.eval()
    try:
        scored = [
            (place, thought_logprobs(model, prompts[place], different, temperature).tolist())
            for place in range(state.process_index, len(prompts), state.num_processes)
        ]
    finally:
        model.train(training)
    columns = dict(gather_object(scored))
    logprobs = torch.tensor([columns[place] for place in range(len(prompts))]).T  # of different thoughts
    rows = [different.index(pair.thought) for pair in pairs]
    lengths = torch.tensor([len(pair.thought) for pair in pairs])
    own = torch.tensor([prompts.index(pair.prompt) for pair in pairs])
    return prompt_dependence(logprobs[rows], lengths, own)  # logprobs[rows] is (N, P)
