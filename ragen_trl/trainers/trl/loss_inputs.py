"""What TRL's loss of a micro-batch reads, so prepared that tokens which nobody sampled cannot spoil it.

TRL exponentiates differences of log-probabilities at all completion tokens and masks afterwards. At environment tokens
these may differ by any amount: from 89 nats on the exponential is infinite in float32, and infinity times 0 is NaN. So
all log-probabilities are 0 there before TRL sees them.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ragen_trl.algorithms.losses import sequence_log_ratios
from ragen_trl.batching.batch import sampled_mask
from ragen_trl.batching.segments import others_of

_LOGPROBS = ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps")


class LossInputs:
    """One micro-batch while TRL calculates its loss.

    With ``sequence_ratios`` every token gets the ratio of its sequence, with a gradient of its own (GSPO-token).

    Attributes:
        sampled: (B, T) bool, the tokens that the policy sampled.
        columns: For TRL: the same tensors, with log-probabilities of 0 where nothing was sampled.
    """

    def __init__(self, inputs: Mapping[str, Any], sequence_ratios: bool) -> None:
        self.sampled = sampled_mask(inputs)
        self._sequence_ratios = sequence_ratios
        given = {name: inputs[name] for name in _LOGPROBS if inputs.get(name) is not None}
        self.columns: dict[str, Any] = {
            **inputs,
            **{name: values.masked_fill(~self.sampled, 0.0) for name, values in given.items()},
        }

    def scored(self, logprobs: torch.Tensor) -> torch.Tensor:
        """The policy's (B, T) log-probabilities as TRL's loss should see them; called before it reads the old ones."""
        logprobs = logprobs.masked_fill(~self.sampled, 0.0)
        old = self.columns.get("old_per_token_logps")
        if self._sequence_ratios and old is not None:
            log_ratios = sequence_log_ratios(logprobs, old, self.sampled, others_of(self.columns))
            self.columns["old_per_token_logps"] = (logprobs - log_ratios).detach()
        return logprobs
