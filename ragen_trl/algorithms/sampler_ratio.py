"""What importance ratios make good for: the sampler (vLLM) computes log-probabilities a little differently."""

import torch

from ragen_trl.algorithms.losses import sums_of_others


def sampler_ratio(
    trained: torch.Tensor,
    sampled: torch.Tensor,
    mask: torch.Tensor,
    mode: str,
    low: float | None = None,
    high: float | None = None,
    sequences: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""TRL's importance ratio of the policy that is trained to the one that sampled, cut off at bounds.

    .. math:: w_t = \frac{\pi_{old}(y_t)}{\pi_{sampler}(y_t)}, \quad w = \prod_{t:\,m_t = 1} w_t

    Args:
        trained: (B, T) log-probabilities as the trainer computes them, nats.
        sampled: (B, T) the same as the sampler gave them. NaN, for a token that it could not score, is no correction.
        mask: (B, T), 1 at sampled tokens.
        mode: "token_truncate" or "token_mask" for the ratio of each token, "sequence_truncate" or "sequence_mask" for
            each row's. Ratios out of bounds are moved to them (truncate) or are 0 (mask).
        low: Lower bound; ``None``: none.
        high: Upper bound; ``None``: none.
        sequences: (B,) for rows that are parts of sequences: the index of each row's sequence, whose ratio it then has.

    Returns:
        (B, T) for tokens, (B, 1) for rows; 1 at environment tokens.
    """
    level, treatment = mode.split("_")
    difference = ((trained - sampled) * mask).nan_to_num(nan=0.0)
    if level == "sequence":
        total = difference.sum(dim=1)
        difference = (total if sequences is None else total + sums_of_others(total, sequences))[:, None]
    ratio = difference.exp()
    bounded = ratio.clamp(low, high) if (low, high) != (None, None) else ratio
    return bounded if treatment == "truncate" else ratio.masked_fill(ratio != bounded, 0.0)
