"""The weights that a policy has at one moment, to sample from them in another thread while training changes them.

The copy is a module of its own. It shares parameters that are not trained: with LoRA it is as large as the adapters.
"""

import copy

import torch
from torch import nn
from transformers import PreTrainedModel


class FrozenCopy:
    """A copy of a policy, made by the first `take`."""

    def __init__(self) -> None:
        self._model: PreTrainedModel | None = None

    @torch.no_grad()
    def take(self, policy: PreTrainedModel) -> PreTrainedModel:
        """The copy, in evaluation mode, with the weights that the unwrapped policy has now.

        It is one and the same module every time, so nothing may sample from it meanwhile.
        """
        if self._model is None or _shares_trained(policy, self._model):
            self._model = _detached(policy)
        for own, copied in zip(policy.parameters(), self._model.parameters(), strict=True):
            if copied is not own:
                copied.copy_(own)
        return self._model


def _shares_trained(policy: nn.Module, copied: nn.Module) -> bool:
    pairs = zip(policy.parameters(), copied.parameters(), strict=True)
    return any(one is other and one.requires_grad for one, other in pairs)


def _detached(policy: PreTrainedModel) -> PreTrainedModel:
    shared = {id(parameter): parameter for parameter in policy.parameters() if not parameter.requires_grad}
    copied = copy.deepcopy(policy, shared)
    for module in copied.modules():
        # TRL's fused head and Accelerate's autocast replace `forward` by functions that call the policy's own.
        vars(module).pop("forward", None)
    return copied.eval()  # its parameters keep their flags: autocast casts trainable ones once for a reply
