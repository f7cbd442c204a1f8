"""What is asked of vLLM for a row, and what comes back, over HTTP and in the same process."""

import math
from dataclasses import dataclass
from typing import Any

from ragen_trl.policies.sampling import Sampling


@dataclass(frozen=True)
class Context:
    """One row's request: all tokens before the reply, the reply's seed and limit, and the row's index."""

    ids: list[int]
    seed: int
    max_tokens: int
    row: int = 0


@dataclass(frozen=True)
class Completion:
    """Sampled tokens, including the one that ended the reply, and the log-probability of each (NaN if unknown)."""

    ids: list[int]
    logprobs: list[float]


def shared_options(sampling: Sampling) -> dict[str, Any]:
    """The sampling options that all rows share; ``logprobs=0`` asks only about the sampled tokens."""
    return {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "logprobs": 0}


def ends(sampling: Sampling, stop_ids: frozenset[int]) -> dict[str, Any]:
    """The options for what ends a reply. The token that ends it is part of the reply, in both cases."""
    texts = {"stop": ["</answer>"], "include_stop_str_in_output": True} if sampling.stop_at_answer else {}
    return {"stop_token_ids": sorted(stop_ids), **texts}


def reply(client: Any, context: Context, sampling: Sampling, stop_ids: frozenset[int]) -> Completion:
    """A server's reply to one row, asked through TRL's client."""
    answer = client.generate(
        prompts=[context.ids],
        max_tokens=context.max_tokens,
        generation_kwargs={"seed": context.seed, **ends(sampling, stop_ids)},
        **shared_options(sampling),
    )
    (ids,), (logprobs,) = answer["completion_ids"], answer["logprobs"]
    values = [place[0] for place in logprobs]  # one per position: the sampled token's
    return Completion(list(ids), [math.nan if value is None else value for value in values])
