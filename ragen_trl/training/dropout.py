"""Dropout off: sampled tokens are scored, and trained, in the very network that sampled them.

With dropout in the loss, the ratio of the first update is not 1 but noise, and A*-PO's log-ratio carries the noise of
both policies. TRL's ``disable_dropout`` reaches only ``torch.nn.Dropout``; many models keep a probability as a number,
PEFT's LoHa and LoKr keep a dictionary of them, and mixtures of experts have jitter of the same kind.
"""

from typing import Any

from peft import PeftModel
from torch import nn

_NAMES = ("dropout", "drop_path", "drop_prob", "layerdrop", "pdrop", "jitter")


def switch_off_dropout(model: nn.Module) -> dict[str, float]:
    """Set all dropout and jitter in a model to 0. Returns what it was: attribute or class → largest probability."""
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
    values = value.values() if isinstance(value, dict) else [value]
    numbers = [one for one in values if isinstance(one, float)]
    return max(numbers, default=0.0) if len(numbers) == len(values) else 0.0
