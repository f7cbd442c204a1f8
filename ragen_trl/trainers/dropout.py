"""Dropout off: sampled tokens are scored, and trained, in the very network that sampled them.

A sampler runs without dropout. A loss with dropout would take the log-probabilities of another network for those of
the policy: the ratio of the first update is then not 1 but noise, and A*-PO's log-ratio to its reference carries the
noise of both. TRL's ``disable_dropout`` reaches only modules of type ``torch.nn.Dropout``; many models keep a
probability as a number instead, PEFT's LoHa and LoKr keep a dictionary of them, and mixtures of experts have jitter of
the same kind.
"""

from typing import Any

from peft import PeftModel
from torch import nn

_NAMES = ("dropout", "drop_path", "drop_prob", "layerdrop", "pdrop", "jitter")


def switch_off_dropout(model: nn.Module) -> dict[str, float]:
    """Set the probability of everything in the model that drops or disturbs activations in training to 0.

    Args:
        model: The model, with its adapters.

    Returns:
        What was switched off, by TRL too: name of the attribute or class → largest value.
    """
    found: dict[str, float] = {}
    for module in model.modules():
        kind = type(module).__name__
        for name, value in list(vars(module).items()):
            if name in ("p", "drop_prob") and "drop" in kind.lower():
                label = kind
            elif any(part in name for part in _NAMES):
                label = name
            else:
                continue
            largest = _largest(value)
            if largest:
                found[label] = max(largest, found.get(label, 0.0))
                setattr(module, name, dict.fromkeys(value, 0.0) if isinstance(value, dict) else 0.0)
    for adapter in model.peft_config.values() if isinstance(model, PeftModel) else []:  # TRL was there first
        found |= {name: value for name, value in adapter.to_dict().items() if name.endswith("dropout") and value}
    return found


def _largest(value: Any) -> float:
    """The probability that an attribute holds, or the largest of those of several adapters; 0 if it holds none."""
    values = value.values() if isinstance(value, dict) else [value]
    numbers = [one for one in values if isinstance(one, float)]
    return max(numbers, default=0.0) if len(numbers) == len(values) else 0.0
