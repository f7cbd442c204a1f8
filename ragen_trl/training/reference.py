"""The policy at one moment, frozen, as a copy of the weights that training changes: what the KL is measured to.

The copy (of LoRA only the adapters) is swapped into the policy's own module while the reference is needed, so there is
no second module to patch, prepare and save. A LoRA that adds nothing yet is only switched off: the reference with its
cached V* is then the base model. Where FSDP2 or ZeRO-3 divides the policy, each process exchanges its own part.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import replacing
from ragen_trl.system.hashing import hash_weight
from ragen_trl.system.shards import any_nonzero, is_divided, part, part_of, release, release_zero3, whole, whole_shape

_FILE = "reference.safetensors"
# Settings that no forward pass reads, and that trainers set or that differ between two loads of one model.
_VOLATILE = {
    *("architectures", "dtype", "transformers_version", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("base_model_name_or_path", "revision", "peft_version", "inference_mode", "task_type", "auto_mapping"),
    *("init_lora_weights", "lora_dropout"),
}


class ReferenceWeightsError(UserError, ValueError):
    """A reference cannot be made, read or sent with the weights of this policy."""


class Reference:
    """The policy at this moment, frozen.

    Make it when the policy, unwrapped, has its adapters and before training begins. Its trainable parameters are
    copied; the others must not change.

    Attributes:
        reanchored: Whether ``reanchor`` or ``load`` replaced what the constructor copied. Only then does a resumed run
            need ``save`` and ``load``.

    Raises:
        ReferenceWeightsError: If no parameter of the policy is trainable.
    """

    def __init__(self, policy: PreTrainedModel | PeftModel) -> None:
        self._policy = policy
        self.reanchored = False
        if not self._trainable():
            raise ReferenceWeightsError(
                "no parameter of the policy is trainable, so that it would always equal its reference; load an "
                "adapter with is_trainable=True, or call requires_grad_(True)"
            )
        self._fingerprint: str | None = None  # of these weights, once it was asked for
        # None: the reference is the policy without its adapters.
        self._weights: dict[str, torch.Tensor] | None = None if self._adapters_add_nothing() else self._copy()
        self._holds_parts = self._is_divided()  # of the weights, as the policy does

    def check_sendable(self) -> None:
        """Raise `ReferenceWeightsError` where vLLM, which is sent merged weights, would not get the reference.

        That is where the reference is the policy without its adapter, and the adapter has learnt.
        """
        if self._weights is None and not self._adapters_add_nothing():
            raise ReferenceWeightsError(
                "the reference is the policy without its adapter, which TRL cannot send to vLLM once the adapter is "
                "trained; estimate V* before that, or call reference.reanchor() first, or set use_vllm=False"
            )

    @contextmanager
    def model(self) -> Iterator[PreTrainedModel | PeftModel]:
        """The policy's module with the reference's weights, in evaluation mode and without gradients.

        Afterwards weights, modes and ``requires_grad`` flags are as before. Do not train in this block.
        """
        release(self._policy)
        modes = [(module, module.training) for module in self._policy.modules()]
        flags = [(parameter, parameter.requires_grad) for parameter in self._policy.parameters()]
        swapped = self._swapped() if self._weights is not None else self._policy.disable_adapter()
        try:
            with torch.no_grad(), swapped:
                self._policy.eval()
                yield self._policy
        finally:
            release(self._policy)
            for module, training in modes:
                module.training = training
            for parameter, flag in flags:  # PEFT makes the active adapter trainable when it switches it on again
                parameter.requires_grad_(flag)

    def reanchor(self) -> None:
        """Make the present policy the reference."""
        self._weights, self._fingerprint, self._holds_parts = self._copy(), None, self._is_divided()
        self.reanchored = True

    def follow(self, share: float) -> None:
        """Move the reference's weights by this share of the way to the policy's (TR-DPO, arXiv 2404.09656)."""
        if self._weights is None:
            raise ReferenceWeightsError("the reference is the policy without its adapter, which cannot follow it")
        self._align()
        for name, weight in self._weights.items():
            weight.lerp_(part(self._policy.get_parameter(name)).to(weight), share)
        self._fingerprint, self.reanchored = None, True

    def fingerprint(self) -> str:
        """SHA-256 of everything that the reference computes with: names and bytes of its weights, and its settings.

        It is the same in every process and for one base model under any LoRA that is switched off.
        """
        if self._fingerprint is None:
            self._fingerprint = self._hashed()
        return self._fingerprint

    def _hashed(self) -> str:
        self._align()
        digest = sha256(self._settings().encode())
        own = self._weights or {}
        saved = self._policy.state_dict().keys()  # buffers that are not saved follow from the settings
        buffers = {name: buffer for name, buffer in self._policy.named_buffers() if name in saved}
        weights = {**dict(self._policy.named_parameters()), **buffers}
        for name in sorted(weights.keys() - self._names_of_other_adapters(), key=_plain_name):
            tensor = self._whole_weight(name) if name in own else whole(weights[name])
            hash_weight(digest, _plain_name(name), tensor)
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the reference's weights to ``reference.safetensors`` in ``folder``, whole or not at all.

        All processes call it together. The file does not depend on how the policy was divided.
        """
        self._align()
        is_first, weights = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0, {}
        for name in self._weights or {}:
            gathered = self._whole_weight(name)
            if is_first:  # no second copy of all weights in the other processes
                weights[name] = gathered.contiguous().cpu()
        if not is_first:
            return
        with replacing(Path(folder) / _FILE) as partial:
            save_file(weights, partial, metadata={"adapters": "off" if self._weights is None else "on"})

    def load(self, folder: str | Path) -> None:
        """Read the weights that ``save`` wrote; `ReferenceWeightsError` if missing, damaged or another policy's."""
        path = Path(folder) / _FILE
        try:
            with safe_open(path, framework="pt") as file:
                off = file.metadata()["adapters"] == "off"
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        except (OSError, SafetensorError) as error:
            raise ReferenceWeightsError(
                f"{path} cannot be read ({error}); resume from a checkpoint that was written whole, or "
                "train from the beginning"
            ) from error
        trainable = self._trainable()
        if not off and weights.keys() != trainable.keys():
            different = sorted(weights.keys() ^ trainable.keys())
            raise ReferenceWeightsError(
                f"{path} belongs to another policy: {len(different)} parameters are only in the file or only in the "
                f"policy, such as {different[0]!r}; resume with the model and adapter settings that the run began with"
            )
        self._weights, self._holds_parts, self._fingerprint = None if off else weights, False, None
        self._align()
        self.reanchored = True

    def _trainable(self) -> dict[str, torch.nn.Parameter]:
        return {name: value for name, value in self._policy.named_parameters() if value.requires_grad}

    def _copy(self) -> dict[str, torch.Tensor]:
        release(self._policy)
        return {name: part(value).clone() for name, value in self._trainable().items()}

    def _is_divided(self) -> bool:
        return any(is_divided(value) for value in self._policy.parameters())

    def _align(self) -> None:
        """Bring the copied weights to where the policy's are: a launch may have moved or divided these since then."""
        release(self._policy)
        divides = not self._holds_parts and self._is_divided()
        own = [(name, weight, self._policy.get_parameter(name)) for name, weight in (self._weights or {}).items()]
        aligned = {name: _aligned(name, weight, parameter, divides) for name, weight, parameter in own}
        if self._weights is not None:
            self._weights, self._holds_parts = aligned, self._is_divided()

    def _whole_weight(self, name: str) -> torch.Tensor:
        assert self._weights is not None
        return whole(self._policy.get_parameter(name), self._weights[name])

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        """Put the copied weights into the policy's parameters, the very objects that optimizers and DDP hold."""
        self._align()
        assert self._weights is not None
        own = [(name, self._policy.get_parameter(name)) for name in self._weights]
        if self._holds_parts:
            with self._exchanged(own):
                yield
            return
        kept = [(parameter, parameter.data) for _, parameter in own]
        torch.clear_autocast_cache()  # autocast keeps the cast weights of a parameter even when its data change
        try:
            for name, parameter in own:
                parameter.data = self._weights[name]
            yield
        finally:
            for parameter, data in kept:
                parameter.data = data
            torch.clear_autocast_cache()

    @contextmanager
    def _exchanged(self, own: list[tuple[str, nn.Parameter]]) -> Iterator[None]:
        """The same for a divided policy: its engine gathers from memory of its own, so contents are exchanged."""

        def exchange() -> None:
            assert self._weights is not None
            release_zero3(self._policy)
            release(self._policy)
            for name, parameter in own:
                held, other = part(parameter), self._weights[name]
                kept = held.clone()
                held.copy_(other)
                other.copy_(kept)

        exchange()
        torch.clear_autocast_cache()
        try:
            yield
        finally:
            exchange()
            torch.clear_autocast_cache()

    def _adapters_add_nothing(self) -> bool:
        """Whether only a LoRA is trainable and one of its factors is 0 everywhere, as PEFT makes it by default."""
        policy, trainable = self._policy, self._trainable()
        if not isinstance(policy, PeftModel) or not isinstance(policy.active_peft_config, LoraConfig):
            return False
        zeros = ("lora_B.", "lora_embedding_A.")
        factors = (*zeros, "lora_A.", "lora_embedding_B.")
        if not all(any(factor in name for factor in factors) for name in trainable):
            return False  # biases, DoRA's magnitudes, whole modules
        return not any_nonzero(value for name, value in trainable.items() if any(zero in name for zero in zeros))

    def _names_of_other_adapters(self) -> set[str]:
        """Parameters of adapters that are not the policy's own, such as a critic's."""
        policy = self._policy
        if not isinstance(policy, PeftModel):
            return set()
        adapters = set(policy.peft_config)
        own = set(self._weights or ())
        return {name for name, _ in policy.named_parameters() if adapters & set(name.split("."))} - own

    def _settings(self) -> str:
        settings: dict[str, Any] = {"model": _stable(self._policy.config.to_dict())}
        if isinstance(self._policy, PeftModel) and self._weights is not None:
            settings["adapter"] = _stable(self._policy.active_peft_config.to_dict())
        return json.dumps(settings, sort_keys=True, default=str)


def _aligned(name: str, weight: torch.Tensor, parameter: torch.Tensor, divides: bool) -> torch.Tensor:
    """The weight on the parameter's device and in its dtype, and cut to this process's part if it must be divided."""
    held = part(parameter)
    shape = whole_shape(parameter) if divides else tuple(held.shape)
    if tuple(weight.shape) != shape:
        raise ReferenceWeightsError(
            f"{name} has shape {shape} in the policy and {tuple(weight.shape)} in its reference; resume with the "
            "policy of the stopped run"
        )
    weight = weight.to(device=held.device, dtype=held.dtype)
    return part_of(weight, parameter).clone() if divides else weight


def _plain_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _stable(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {
            str(name): _stable(value)
            for name, value in settings.items()
            if name not in _VOLATILE and not str(name).startswith("_")
        }
    return sorted(settings) if isinstance(settings, set) else settings


class SyncReference(TrainerCallback):
    """The reference follows the policy (``sync_ref_model``), every so many updates, as TRL's second model does."""

    def __init__(self, reference: Reference, args: Any) -> None:
        self._reference, self._every, self._share = reference, args.ref_model_sync_steps, args.ref_model_mixup_alpha

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Called after each update."""
        if state.global_step % self._every == 0:
            with torch.no_grad():
                self._reference.follow(self._share)
