"""The policy at one moment, frozen, as a copy of the weights that training changes: what the KL is measured to.

The copy (of LoRA only the adapters) changes places with the policy's weights while the reference is needed, so there is
no second module to patch, prepare and save. Where FSDP2 or ZeRO-3 divides the policy, each process exchanges its part.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from ragen_trl.system import shards
from ragen_trl.system.atomic import replacing

_FILE = "reference.safetensors"
# Settings that no forward pass reads, and that trainers set or that differ between two loads of one model.
_VOLATILE = {
    *("architectures", "dtype", "transformers_version", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("base_model_name_or_path", "revision", "peft_version", "inference_mode", "task_type", "auto_mapping"),
    *("init_lora_weights", "lora_dropout"),
}


class Reference:
    """The policy at this moment, frozen: its trainable parameters are copied, the others must not change.

    Make it when the policy, unwrapped, has its adapters and before training begins. ``reanchored`` says whether
    ``reanchor`` or ``load`` replaced that copy; only then does a resumed run need ``save`` and ``load``.
    """

    def __init__(self, policy: PreTrainedModel | PeftModel) -> None:
        self._policy = policy
        self.reanchor()
        self.reanchored = False

    def reanchor(self) -> None:
        """Make the present policy the reference."""
        shards.release(self._policy)
        self._weights = {name: shards.part(value).clone() for name, value in self._trainable().items()}
        self._parts = self._divided()  # of which weights this process holds a part
        self._is_base = self._is_fresh_lora()
        self._fingerprint: str | None = None  # of these weights, once it was asked for
        self.reanchored = True

    @contextmanager
    def model(self) -> Iterator[PreTrainedModel | PeftModel]:
        """The policy's module with the reference's weights, in evaluation mode and without gradients.

        Afterwards weights and modes are as before. Do not train in this block.
        """
        modes = [(module, module.training) for module in self._policy.modules()]
        with torch.no_grad():
            self._exchange()
            try:
                self._policy.eval()
                yield self._policy
            finally:
                self._exchange()
                for module, training in modes:
                    module.training = training

    def fingerprint(self) -> str:
        """SHA-256 of everything that the reference computes with: names and bytes of its weights, and its settings.

        It is the same in every process, and of a LoRA that has learnt nothing it is the base model's.
        """
        if self._fingerprint is None:
            self._align()
            digest, policy = sha256(self._settings().encode()), self._policy
            own = {} if self._is_base else self._weights
            saved = policy.state_dict().keys()  # buffers that are not saved follow from the settings
            buffers = {name: buffer for name, buffer in policy.named_buffers() if name in saved}
            weights = {**dict(policy.named_parameters()), **buffers}
            adapters = set(policy.peft_config) if isinstance(policy, PeftModel) else set()
            others = {name for name in weights if adapters & set(name.split("."))} - own.keys()
            with self.model():
                for name in sorted(weights.keys() - others, key=_plain_name):
                    hash_weight(digest, _plain_name(name), shards.whole(weights[name]))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def save(self, folder: str | Path) -> None:
        """Write the reference's weights to ``reference.safetensors`` in ``folder``, whole or not at all.

        All processes call it together. The file does not depend on how the policy was divided.
        """
        with self.model() as policy:
            if weights := shards.whole_on_first({name: policy.get_parameter(name) for name in self._weights}):
                with replacing(Path(folder) / _FILE) as partial:
                    save_file({name: weight.contiguous() for name, weight in weights.items()}, partial)

    def load(self, folder: str | Path) -> None:
        """Read the weights that ``save`` wrote of this policy."""
        self._weights, self._parts, self._fingerprint = load_file(Path(folder) / _FILE), set[str](), None
        self._is_base = self._is_fresh_lora(self._weights)
        self._align()
        self.reanchored = True

    def _trainable(self) -> dict[str, torch.nn.Parameter]:
        return {name: value for name, value in self._policy.named_parameters() if value.requires_grad}

    def _divided(self) -> set[str]:
        return {name for name, value in self._trainable().items() if shards.is_divided(value)}

    def _align(self) -> None:
        """Bring the copied weights to where the policy's are: a launch may have moved or divided these since then."""
        shards.release(self._policy)
        # Under ZeRO-3 a base model is divided as it is loaded, and a LoRA, which is made later, by the launch.
        newly = self._divided() - self._parts
        for name, weight in self._weights.items():
            parameter = self._policy.get_parameter(name)
            held = shards.part(parameter)
            weight = weight.to(device=held.device, dtype=held.dtype)
            self._weights[name] = shards.part_of(weight, parameter).clone() if name in newly else weight
        self._parts |= newly

    def _exchange(self) -> None:
        """Let the copied weights and the policy's change places, in the very memory that optimizers and engines hold.

        Gathered weights are freed before and after, since they do not follow; so are the casts that autocast keeps.
        """
        self._align()
        shards.release_zero3(self._policy)
        for name, other in self._weights.items():
            held = shards.part(self._policy.get_parameter(name))
            kept = held.clone()
            held.copy_(other)
            other.copy_(kept)
        torch.clear_autocast_cache()

    def _is_fresh_lora(self, weights: dict[str, torch.Tensor] | None = None) -> bool:
        """Whether only a LoRA is trainable and one of its factors is 0 everywhere, as PEFT makes it by default.

        Asked of ``weights``, or of the policy.
        """
        policy, found = self._policy, weights or self._trainable()
        if not isinstance(policy, PeftModel) or not isinstance(policy.active_peft_config, LoraConfig):
            return False
        zeros = ("lora_B.", "lora_embedding_A.")
        factors = (*zeros, "lora_A.", "lora_embedding_B.")
        if not all(any(factor in name for factor in factors) for name in found):
            return False  # biases, DoRA's magnitudes, whole modules
        return not shards.any_nonzero(value for name, value in found.items() if any(zero in name for zero in zeros))

    def _settings(self) -> str:
        settings = [self._policy.config.to_dict()]
        if isinstance(self._policy, PeftModel) and not self._is_base:
            settings.append(self._policy.active_peft_config.to_dict())
        read = [
            {name: value for name, value in one.items() if name not in _VOLATILE and not name.startswith("_")}
            for one in settings
        ]
        return json.dumps(read, sort_keys=True, default=lambda one: sorted(one) if isinstance(one, set) else str(one))


def _plain_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def hash_weight(digest: Any, name: str, weight: torch.Tensor) -> None:
    """Add a whole weight, with its name, dtype and shape, to a digest of ``hashlib``."""
    digest.update(f"\n{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
    for piece in weight.reshape(-1).split(1 << 22):  # elements hashed at a time
        digest.update(memoryview(piece.view(torch.uint8).cpu().numpy()))
