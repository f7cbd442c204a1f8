"""The networks that can be a critic, a separate model or a second LoRA adapter on the policy's base; and their files.

Both read tokens with the backbone and a linear value head in float32. They start as a copy of the policy with a head of
zeros, so every first value is 0. Dropout is off in training as well, because old and new values must differ only by the
update.
"""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import pad
from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, AutoModelForTokenClassification, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ragen_trl.batching.shared_prefixes import share_prefixes
from ragen_trl.errors import UserError
from ragen_trl.policies.model_calls import additive_mask
from ragen_trl.system.atomic import fresh_partial, move_into_place
from ragen_trl.system.shards import built_whole, copy_weights, divide_by_layer, release, sharded_modules, whole_on_first

ADAPTER = "critic"
_HEAD_FILE = "head.safetensors"
_RECORD = "critic.json"
_REMEDY = "train with LoRA (peft_config=LoraConfig(...)), or choose advantage='group' or 'gigpo', which need no critic"


class CriticError(UserError, ValueError):
    """No critic can be made for this policy or this launch, or a folder cannot be used for its weights."""


class ValueNetwork(ABC):
    """Tokens in, one value per position out.

    Attributes:
        kind: Which of the networks this is; stored with saved weights.
        backbone: The model whose output has ``last_hidden_state``.
        head: Linear(hidden size, 1), float32.
        parameters: The trained parameters; none of them is the policy's.
        model: The backbone's model, whose configuration says how it attends.
        shares_prefixes: Whether tokens that rows begin with in common are computed once.
        gathers: Whether every pass gathers weights, so all processes must make the same number of them.
    """

    kind: str
    gathers: bool = False
    model: PreTrainedModel
    shares_prefixes: bool = False
    backbone: nn.Module
    head: nn.Linear
    parameters: list[nn.Parameter]

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(B, T) float32 value of the state after each token; at padding, which is on the right, it means nothing.

        Call it only inside ``active``.
        """
        if self.shares_prefixes:
            return self._packed(input_ids, attention_mask)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        return self._values(input_ids, attention_mask, positions)

    def _packed(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        # Every token is read to value what follows it, as it is read to predict that: a column more follows the last.
        ids, attended = pad(input_ids, (0, 1)), pad(attention_mask, (1, 0), value=1)
        rows = share_prefixes(ids, attended, attended, self.model.config.get_text_config().hidden_size)
        mask = additive_mask(self.model, rows.visible) if rows.branches else None
        values = self._values(rows.ids, mask, rows.positions)
        return rows.unpacked(values.flatten()[rows.predictors])[:, 1:]

    def _values(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
        output = self.backbone(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state  # (rows, places, H)
        with torch.autocast(hidden.device.type, enabled=False):
            values: torch.Tensor = self.head(hidden.float()).squeeze(-1)
        return values

    @abstractmethod
    def active(self, training: bool) -> AbstractContextManager[None]:
        """A context in which the network may be called. After it the policy is exactly as it was before."""

    def whole_state(self) -> dict[str, torch.Tensor]:
        """What ``save`` needs of other processes, which all call it together; by default nothing."""
        return {}

    @abstractmethod
    def save(self, folder: Path, state: dict[str, torch.Tensor]) -> None:
        """Write the weights, with the state from ``whole_state``, into an existing folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read the weights that ``save`` wrote, into the same parameters."""


class SeparateNetwork(ValueNetwork):
    """A whole ``AutoModelForTokenClassification(num_labels=1)`` whose backbone is a copy of the policy's.

    Raises:
        CriticError: If transformers has no token-classification class for the architecture.
    """

    kind = "model"

    def __init__(self, policy: PreTrainedModel, device: torch.device, gradient_checkpointing: bool) -> None:
        config = copy.deepcopy(policy.config)
        config.num_labels = 1
        if type(config) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
            raise CriticError(
                f"transformers has no token-classification class for models of type {config.model_type!r}, "
                f"so there is no critic for it; {_REMEDY}"
            )
        attention = policy.config._attn_implementation
        with built_whole():
            made = AutoModelForTokenClassification.from_config(config, attn_implementation=attention)
        model = made.to(policy.dtype)
        heads = [layer for layer in model.children() if isinstance(layer, nn.Linear) and layer.out_features == 1]
        try:
            (head,) = heads
            copy_weights(policy.base_model, model.base_model)
        except (ValueError, RuntimeError) as error:
            raise CriticError(
                f"{type(model).__name__} is not the backbone of {type(policy).__name__} with one linear head "
                f"({error}), so there is no critic for it; {_REMEDY}"
            ) from error
        nn.init.zeros_(head.weight)
        if head.bias is not None:
            nn.init.zeros_(head.bias)
        head.float()
        if gradient_checkpointing:
            # The name that all supported releases of Transformers know; the newest ones call it deprecated.
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model = model.to(device).requires_grad_(True)
        self.backbone, self.head = model.base_model, head
        self.parameters = list(model.parameters())

    @contextmanager
    def active(self, training: bool) -> Iterator[None]:
        """Dropout is off; the policy does not change at all."""
        with _without_dropout(self.model, training):
            yield

    def divide(self, device: torch.device) -> None:
        """Divide the backbone over the processes of the launch; call it before an optimizer is made."""
        self.head.to(device)
        divide_by_layer(self.backbone, GradientCheckpointingLayer, device)
        self.parameters, self.gathers = list(self.model.parameters()), True

    def whole_state(self) -> dict[str, torch.Tensor]:
        """The model's weights, on the first process."""
        return whole_on_first(self.model.state_dict(keep_vars=True))

    def save(self, folder: Path, state: dict[str, torch.Tensor]) -> None:
        """Write the model so ``from_pretrained`` can read it."""
        self.model.save_pretrained(folder, state_dict=state)

    def load(self, folder: Path) -> None:
        """Read with ``from_pretrained`` in float32, which represents the weights of any precision exactly."""
        copy_weights(type(self.model).from_pretrained(folder, dtype=torch.float32), self.model)


class AdapterNetwork(ValueNetwork):
    """A LoRA adapter like the policy's, and a value head, on the policy's base.

    The adapter is part of the policy only while the critic runs; at other times its matrices are kept here, so nothing
    that reads a model's parameters or adapters (optimizer, DDP, saving, merging, an inference server) sees it. The
    policy's ``modules_to_save``, biases and single trained tokens belong to the policy alone.

    Raises:
        CriticError: If the active adapter is not LoRA, or the policy has an adapter named "critic" already.
    """

    kind = "adapter"

    def __init__(self, policy: PeftModel, device: torch.device) -> None:
        settings = policy.active_peft_config
        if not isinstance(settings, LoraConfig):
            raise CriticError(
                f"the policy's adapter is {settings.peft_type.value}, and a critic on its base needs LoRA; {_REMEDY}"
            )
        if ADAPTER in policy.peft_config:
            raise CriticError(f"the policy has an adapter named {ADAPTER!r} already; load it under another name")
        self._policy = policy
        weights = get_peft_model_state_dict(policy, adapter_name=policy.active_adapter, save_embedding_layers=False)
        policy_parameters = {id(parameter) for parameter in policy.parameters()}
        with _policy_restored(policy):
            policy.add_adapter(ADAPTER, _critic_settings(settings))
            # A copy and not a new adapter, because a warm-started policy reads with its own adapter.
            lora = {name: value for name, value in weights.items() if "lora_" in name}
            set_peft_model_state_dict(policy, lora, adapter_name=ADAPTER)
            self._config = policy.peft_config[ADAPTER]
            self._slots = [(slots, slots[ADAPTER]) for slots in _adapter_slots(policy)]
            self._adapter = [value for value in policy.parameters() if id(value) not in policy_parameters]
        for value in self._adapter:  # a launch that divides the policy places it later
            value.data = value.data.to(device)
        self.model = policy.get_base_model()
        self.backbone = self.model.base_model
        self.head = nn.Linear(policy.config.get_text_config().hidden_size, 1, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.parameters = [*self._adapter, *self.head.parameters()]

    def _values(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
        for root in sharded_modules(self._policy)[:1]:
            root.unshard()  # since only what is below it is called; backward passes free it
        return super()._values(ids, mask, positions)

    @contextmanager
    def active(self, training: bool) -> Iterator[None]:
        """The critic's adapter is active instead of the policy's; dropout is off.

        A base that FSDP2 divides is gathered by each pass, as for the policy. One that ZeRO-3 divides has to be whole
        already: its engine only gathers for passes that begin at its root.
        """
        release(self._policy)
        self.gathers = bool(sharded_modules(self._policy))
        with self._installed(), _without_dropout(self._policy, training):
            self._policy.set_adapter(ADAPTER)
            self._policy.requires_grad_(False)
            for parameter in self._adapter:
                parameter.requires_grad_(training)
            yield
            release(self._policy)

    def save(self, folder: Path, state: dict[str, torch.Tensor]) -> None:
        """Write PEFT's files to ``folder/critic``, and the head to ``folder``.

        Transformers takes every folder of a checkpoint that directly contains an adapter for one of the policy's.
        """
        with self._installed():
            self._policy.save_pretrained(folder, selected_adapters=[ADAPTER], save_embedding_layers=False)
        save_file(self.head.state_dict(), folder / _HEAD_FILE)

    def load(self, folder: Path) -> None:
        """Read both parts into the existing parameters."""
        weights = load_peft_weights(str(folder / ADAPTER), device="cpu")
        with self._installed():
            set_peft_model_state_dict(self._policy, weights, adapter_name=ADAPTER)
        self.head.load_state_dict(load_file(folder / _HEAD_FILE))

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with _policy_restored(self._policy):
            self._policy.peft_config[ADAPTER] = self._config
            for slots, content in self._slots:
                slots[ADAPTER] = content
            yield


def _critic_settings(settings: LoraConfig) -> LoraConfig:
    """The policy's LoRA settings without those that change more than the adapter's own matrices."""
    own: LoraConfig = copy.deepcopy(settings)
    own.inference_mode = False
    own.lora_dropout = 0.0
    own.init_lora_weights = True  # overwritten by a copy; "pissa" and similar ones would change the shared base
    own.bias = "none"
    own.modules_to_save = None
    own.trainable_token_indices = None
    own.layer_replication = None  # the policy's adapter has done it already
    return own


@contextmanager
def _policy_restored(policy: PeftModel) -> Iterator[None]:
    """Restore the policy's adapters, the active one, and which parameters are trainable."""
    name = policy.active_adapter
    trainable = [(parameter, parameter.requires_grad) for parameter in policy.parameters()]
    try:
        yield
    finally:
        policy.set_adapter(name)
        for parameter, value in trainable:
            parameter.requires_grad_(value)
        policy.peft_config.pop(ADAPTER, None)
        for slots in _adapter_slots(policy):
            del slots[ADAPTER]


def _adapter_slots(policy: PeftModel) -> list[nn.ModuleDict | nn.ParameterDict]:
    """The dictionaries, by adapter name, in which PEFT's layers keep the critic's matrices."""
    dictionaries = [module for module in policy.modules() if isinstance(module, (nn.ModuleDict, nn.ParameterDict))]
    return [slots for slots in dictionaries if ADAPTER in slots]


@contextmanager
def _without_dropout(model: nn.Module, training: bool) -> Iterator[None]:
    """Evaluation mode, but in training with gradient checkpointing where it is enabled.

    Checkpointing depends on the mode of the decoder layer, dropout on the modes of the modules inside the layer.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        for module in model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = training and module.gradient_checkpointing
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def write_critic(folder: Path, record: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Write a critic's folder, with its kind and shapes, whole or not at all; an earlier critic there is replaced.

    Raises `CriticError` if the folder holds something else.
    """
    if folder.exists() and not (folder / _RECORD).is_file() and any(folder.iterdir()):
        raise CriticError(f"{folder} holds something that is not a critic (no {_RECORD}); name another folder")
    partial = fresh_partial(folder)
    write(partial)
    (partial / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    move_into_place(folder)


def check_critic(folder: Path, record: dict[str, Any]) -> None:
    """Raise `CriticError` unless a folder holds a critic of this kind and these shapes."""
    if not (folder / _RECORD).is_file():
        raise CriticError(
            f"{folder} holds no critic (no {_RECORD}); resume from a checkpoint of a run with a critic, or start again"
        )
    found = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    if found != record:
        raise CriticError(
            f"{folder} holds a critic of kind {found['kind']!r} with {len(found['shapes'])} tensors that does not fit "
            f"this one of kind {record['kind']!r} with {len(record['shapes'])}; resume with the model and the LoRA "
            "settings with which the run was started"
        )
