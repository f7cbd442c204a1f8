"""Training with a model that is divided over two CPU processes, which Accelerate and DeepSpeed leave to other launches.

`allow_on_the_cpu` lifts that, with what no user sets. A cell of the table is an algorithm, an engine, and all weights
or LoRA; `trained` makes its updates, on one process or as one of two, and returns what both must agree on.
"""

import importlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from peft import LoraConfig

from ragen_trl import CollapseMonitor
from tests.support.ragen_trl.trainers import small_model, small_trainer
from tests.support.ragen_trl.two_ranks import ALGORITHMS, ENVIRONMENTS

_ZERO: dict[str, Any] = {
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": "auto",  # without it, DeepSpeed clips at 1
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
ENGINES: dict[str, dict[str, Any]] = {
    "FSDP2": {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": "Qwen2DecoderLayer"}},
    "ZeRO-2": {"deepspeed": {**_ZERO, "zero_optimization": {"stage": 2}}, "use_cpu": False},
    "ZeRO-3": {
        "deepspeed": {
            **_ZERO,
            "zero_optimization": {
                "stage": 3,
                "stage3_param_persistence_threshold": 64,  # smaller ones stay whole, as all of the model's would be
                "stage3_gather_16bit_weights_on_model_save": True,  # which `zero3_save_16bit_model` sets
            },
        },
        "use_cpu": False,
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "FSDP2, sharded state": {
        "fsdp": True,
        "fsdp_config": {**ENGINES["FSDP2"]["fsdp_config"], "state_dict_type": "SHARDED_STATE_DICT"},
    },
    "FSDP2, loaded once": {
        "fsdp": True,
        "fsdp_config": {**ENGINES["FSDP2"]["fsdp_config"], "cpu_ram_efficient_loading": True},
    },
}
"""Checkpoints in parts, and weights that only the first process loads: what ``accelerate config`` sets for FSDP2."""
_LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
# AdamW with a large ε: steps in proportion to the gradient, which do not blow rounding up.
_STEP: dict[str, Any] = {"learning_rate": 0.5, "adam_epsilon": 1.0, "max_grad_norm": 0.3, "max_steps": 3}
_CRITIC: dict[str, Any] = {"critic_learning_rate": 1e-3, "entropy_coef": 0.01}
_STAGE_1: dict[str, Any] = {"num_train_seeds": 12, "reference_samples": 3, "max_reference_samples": 5}

CASES: dict[str, dict[str, Any]] = {
    "KL": {"algorithm": "StarPO", "envs": ["draws"], "rows": 12, "by_name": True, "options": {"beta": 0.2}},
    "StarPO-S": {"algorithm": "StarPO-S", "envs": ["draws"], "rows": 24, "options": {"filter_ratio": 0.4}},
    "no group": {
        "algorithm": "StarPO",
        "envs": ["nothing"],
        "rows": 12,
        "options": {"filter_ratio": 0.4, "weight_decay": 0.5},
    },
    "turns": {
        "algorithm": "StarPO",
        "envs": ["long"],
        "rows": 4,
        "options": {"num_generations": 2, "max_completion_length": 600},
    },
    "bi_level_gae": {
        "algorithm": "StarPO",
        "envs": ["draws"],
        "rows": 12,
        "by_name": True,
        "options": {"advantage": "bi_level_gae", "gae_lambda": 0.9, **_CRITIC},
    },
    "gae and filter": {
        "algorithm": "StarPO",
        "envs": ["draws"],
        "rows": 24,
        "options": {"advantage": "gae", "filter_ratio": 0.4, **_CRITIC},
    },
    "A*-PO": {
        "algorithm": "A*-PO",
        "envs": ["draws"],
        "rows": 12,
        "by_name": True,
        "options": {**_STAGE_1, "refresh_steps": 2, "beta2": 0.1, "kl_coef": 0.1},
    },
}
"""What is trained, by the name of its row in the table."""

WEIGHTS = ("all", "LoRA")


def trained(folder: Path, name: str, weights: str, engine: str | None, **changes: Any) -> dict[str, Any]:
    """What the updates of a cell make: whole weights of the policy and the critic, metrics, V*.

    Args:
        folder: For the run.
        name: Of a case.
        weights: All of them, or LoRA.
        engine: For one of two processes; ``None``: the one process that these are compared with.
        changes: Options.
    """
    trainer = make_trainer(folder, name, weights, engine, **changes)
    trainer.train()
    metrics = [row for row in trainer.state.log_history if "loss" in row]
    return {**learnt(trainer), "metrics": metrics, "values": trainer.values if name == "A*-PO" else None}


@cache
def saved_model() -> str:
    """The folder of the small model, which ZeRO-3 divides while it is loaded.

    Of several processes each has its own. They ask for it first when they are not connected yet: later Transformers
    would write only that of the first.
    """
    path = tempfile.mkdtemp(prefix="small-model-")
    small_model().save_pretrained(path)
    return path


def learnt(trainer: Any) -> dict[str, Any]:
    """Whole weights of the policy and the critic; all processes call it."""
    critic = [] if trainer.critic is None else [_whole(value) for value in trainer.critic.parameters]
    return {"parameters": whole(trainer.accelerator.unwrap_model(trainer.model)), "critic": critic}


def make_trainer(folder: Path, name: str, weights: str, engine: str | None, **changes: Any) -> Any:
    """The trainer of a cell; see `trained`."""
    case, options = CASES[name], {}
    config, trainer = ALGORITHMS[case["algorithm"]]
    rows, processes = case["rows"], 1 if engine is None else int(os.environ["WORLD_SIZE"])
    size = rows if engine is None else 2
    if engine is not None:
        allow_on_the_cpu(engine)
        options = dict({**ENGINES, **SETTINGS}[engine])
    envs = [ENVIRONMENTS[env] for env in case["envs"]]
    torch.manual_seed(0)  # LoRA's first factors
    made = small_trainer(
        folder,
        envs[0] if len(envs) == 1 else envs,
        config=config,
        trainer=trainer,
        model=saved_model() if case.get("by_name") else None,
        peft_config=LoraConfig(**_LORA) if weights == "LoRA" else None,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=rows // processes // size,
        **{**_STEP, **case["options"], **options, **changes},
    )
    assert made.accelerator.num_processes == processes
    if name == "turns":  # it measures with the model, on every process as much as that has played
        made.add_callback(CollapseMonitor(made, mi_every=1))
    return made


def whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A model's parameters, gathered one by one; all processes call it."""
    return {name: _whole(value) for name, value in model.named_parameters()}


def _whole(value: Any) -> torch.Tensor:
    if "ds_id" in vars(value):
        with importlib.import_module("deepspeed").zero.GatheredParameters([value]):
            return value.detach().clone()
    plain: torch.Tensor = value.full_tensor() if isinstance(value, torch.distributed.tensor.DTensor) else value
    return plain.detach().clone()


def deviation(found: dict[str, Any], single: dict[str, Any]) -> float:
    """The largest distance of a weight, of the policy or the critic, from that of one process."""
    pairs = [(found["parameters"][name], value) for name, value in single["parameters"].items()]
    pairs += zip(found["critic"], single["critic"], strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


_SET_BY_ENGINES = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "FSDP_CPU_RAM_EFFICIENT_LOADING")
_plain_init, _plain_backend = AcceleratorState.__init__, PartialState._prepare_backend


def allow_on_the_cpu(engine: str) -> None:
    """Let Accelerate use an engine in this process of a gloo launch; call it before a configuration is made."""
    for name in _SET_BY_ENGINES:
        os.environ.pop(name, None)
    AcceleratorState.__init__, PartialState._prepare_backend = _plain_init, _plain_backend
    AcceleratorState._reset_state(reset_partial_state=True)
    if engine == "FSDP2, loaded once":  # as the launcher does, before a model is loaded
        os.environ |= {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
    if engine.startswith("FSDP2"):
        AcceleratorState.__init__ = _with_fsdp
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
        PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.NO)
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]


def _with_fsdp(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
    _plain_init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)
        self.fsdp_plugin = fsdp_plugin
