"""How vLLM gets the policy's weights: all of them by TRL, or a LoRA adapter alone, through a folder.

TRL loads whole weights into an engine of the same process, and sends them to a server over NCCL, adapters merged. A
server reads an adapter alone from a folder that it shares with the trainer (``vllm_adapter_dir``). Every version has a
folder of its own, because vLLM finds contexts in its cache by name and path. Relies on ``sync_weights`` sending
``model``'s parameters as they are and emptying the prefix cache.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from transformers import PreTrainedModel
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.vllm.client import VLLMServerError
from ragen_trl.policies.vllm.servers import Servers, on_main, server_urls
from ragen_trl.system.shards import whole

# What vLLM reads otherwise than PEFT, or not at all, with the only value that it may have.
_UNREAD: dict[str, Any] = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
    "trainable_token_indices": None,
    "target_parameters": None,
}
# Others change the base, of which the server has a copy of its own.
_INITIALISATIONS = (True, False, "gaussian", "eva", "orthogonal")


class AdapterError(UserError, ValueError):
    """The policy has no adapter that a vLLM server can read."""


def check_adapter(config: PeftConfig | None) -> None:
    """Raise `AdapterError` unless a server gets the trainer's policy if it reads its adapter alone."""
    remedy = "leave vllm_adapter_dir unset, which sends merged weights"
    if not isinstance(config, LoraConfig):
        found = "all weights are trained" if config is None else f"the adapter is a {type(config).__name__}"
        raise AdapterError(
            f"vllm_adapter_dir is set, but {found}; pass a LoraConfig as peft_config (on the command line --lora_r), "
            f"or {remedy}"
        )
    for name, only in _UNREAD.items():
        value = getattr(config, name, only)
        if value != only and value:
            raise AdapterError(
                f"vllm_adapter_dir is set, and {name} of the LoRA configuration is {value!r}, which vLLM does not "
                f"read; leave {only!r}, or {remedy}"
            )
    if config.init_lora_weights not in _INITIALISATIONS:
        raise AdapterError(
            f"vllm_adapter_dir is set, and init_lora_weights is {config.init_lora_weights!r}, which changes the base "
            f"that the server has a copy of; take 'gaussian', or {remedy}"
        )


class WeightSync:
    """Sends the policy's weights to the engine or the servers of a trainer; all processes call it together."""

    def __init__(
        self,
        generation: VLLMGeneration,
        args: StarPOConfig,
        main: bool,
        broadcast: Callable[[list[Any]], list[Any]] = broadcast_object_list,
    ) -> None:
        served = generation.mode == "server"
        self._generation = generation
        self._servers: Servers | None = generation.vllm_client if served and main else None
        self._count = len(server_urls(args.vllm_server_base_url or "one")) if served else 0
        self._in_thread = args.one_step_off_policy
        self._broadcast = broadcast
        self._folder = None if args.vllm_adapter_dir is None else AdapterFolder(Path(args.vllm_adapter_dir))

    def send(self) -> None:
        """Send the present weights to all; `VLLMServerError` on all processes if a server does not get them."""
        if self._folder is not None:
            self._send_adapter(self._folder)
        elif not self._count:
            with unchanged_base(self._generation.model):
                self._generation.sync_weights()
        else:
            self._send_whole(range(self._count))

    def restore(self, lost: list[int]) -> None:
        """Send whole weights again, to the servers that lost them; `Servers` loads adapters again by itself.

        Raises `VLLMServerError` if a server does not get them, or training goes on meanwhile.
        """
        if self._in_thread:
            raise VLLMServerError(
                "a vLLM server was started again while the next rollout was played (one_step_off_policy), and the "
                "weights that it is played with have been trained on; resume from the last checkpoint, and with LoRA "
                "set vllm_adapter_dir, whose adapter is kept"
            )
        self._send_whole(lost)

    def _send_whole(self, indices: Any) -> None:
        with unchanged_base(self._generation.model):
            for index in indices:
                self._on_main(partial(Servers.begin_sending, index=index))
                self._generation.sync_weights()
                self._on_main(Servers.end_sending)

    def _send_adapter(self, folder: "AdapterFolder") -> None:
        model = self._generation.model
        if _switched_off(model):
            self._on_main(Servers.use_base)
            return
        name, state = model.active_adapters[0], adapter_weights(model)

        def load(servers: Servers) -> None:
            version = folder.write(state, model.peft_config[name])
            servers.use_adapter(version.name, str(version))
            folder.keep(version)

        self._on_main(load)

    def _on_main(self, ask: Callable[[Servers], None]) -> None:
        on_main(self._servers, ask, self._broadcast)


class AdapterFolder:
    """The versions of one run's adapter in a folder of this run alone; what a killed run has left there is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._run = uuid.uuid4().hex[:8]  # a resumed run's versions have other names
        self._number = 0

    def write(self, state: dict[str, torch.Tensor], config: PeftConfig) -> Path:
        """Write a version; a server sees all of it or nothing."""
        self._number += 1
        version = self._path / f"adapter-{self._run}-{self._number}"
        partial = self._path / f"partial-{self._run}"
        partial.mkdir(parents=True, exist_ok=True)
        save_file(state, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(str(partial))
        return partial.rename(version)

    def keep(self, version: Path) -> None:
        """Remove all others."""
        for other in [*self._path.glob("adapter-*"), *self._path.glob("partial-*")]:
            if other != version:
                shutil.rmtree(other, ignore_errors=True)


def adapter_weights(model: PeftModel) -> dict[str, torch.Tensor]:
    """The active adapter under PEFT's names, whole and on the CPU; all processes call it together."""
    (name,) = model.active_adapters
    found = {
        key.replace("_checkpoint_wrapped_module.", ""): whole(value).cpu().contiguous()
        for key, value in model.named_parameters()
        if ".lora_" in key and name in key.split(".")
    }
    state: dict[str, torch.Tensor] = get_peft_model_state_dict(
        model, state_dict=found, adapter_name=name, save_embedding_layers=False
    )
    return state


def _switched_off(model: torch.nn.Module) -> bool:
    return any(module.disable_adapters for module in model.modules() if isinstance(module, BaseTunerLayer))


@contextmanager
def unchanged_base(model: torch.nn.Module) -> Iterator[None]:
    """Restore the base weights under LoRA layers bit for bit at the end.

    To send a LoRA policy, TRL adds the adapter to the base weights and subtracts it again, which rounds. A*-PO's
    reference and TRL's KL term are that base.
    """
    layers = [module.get_base_layer() for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    kept = [weight.detach().to("cpu", copy=True) for weight in weights]  # not on the GPU, which two models fill
    try:
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.data.copy_(value)


def adapter_of(model: str | PreTrainedModel | PeftModel, given: PeftConfig | None) -> PeftConfig | None:
    """The configuration of the adapter that will be trained, ``None`` without one."""
    if isinstance(model, PeftModel):
        return model.peft_config[model.active_adapters[0]]
    return given
