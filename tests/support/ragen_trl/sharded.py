"""Training with a model that is divided over two CPU processes, which Accelerate and DeepSpeed leave to other launches.

`allow_on_the_cpu` lifts that, with what no user sets. A cell of the table is an algorithm, an engine, and all weights
or LoRA; `trained` makes its updates, on one process or as one of two, and returns what both must agree on.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from peft import LoraConfig
from torch.distributed.fsdp import FSDPModule

from ragen_trl import CollapseMonitor
from tests.support.ragen_trl.fake_vllm import LORA, SERVER, install_fake_vllm
from tests.support.ragen_trl.trainers import LastRollout, lottery, small_model, small_trainer
from tests.support.ragen_trl.two_ranks import ALGORITHMS, ENVIRONMENTS, STAGE_1, case

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
# AdamW with a large ε: steps in proportion to the gradient, which do not blow rounding up.
_STEP: dict[str, Any] = {"learning_rate": 0.5, "adam_epsilon": 1.0, "max_grad_norm": 0.3, "max_steps": 3}
_CRITIC: dict[str, Any] = {"critic_learning_rate": 1e-3, "entropy_coef": 0.01}


CASES: dict[str, dict[str, Any]] = {
    "KL": case(by_name=True, beta=0.2),
    "StarPO-S": case(rows=24, algorithm="StarPO-S", filter_ratio=0.4),
    "no group": case("nothing", filter_ratio=0.4, weight_decay=0.5),
    "turns": case("long", rows=4, num_generations=2, max_completion_length=600),
    "bi_level_gae": case(by_name=True, advantage="bi_level_gae", gae_lambda=0.9, **_CRITIC),
    "gae and filter": case(rows=24, advantage="gae", filter_ratio=0.4, **_CRITIC),
    "A*-PO": case(algorithm="A*-PO", by_name=True, **STAGE_1, refresh_steps=2, beta2=0.1, kl_coef=0.1),
}
"""What is trained, by the name of its row in the table."""

WEIGHTS = ("all", "LoRA")


def trained(folder: Path, name: str, weights: str, engine: str | None, **changes: Any) -> dict[str, Any]:
    """What the updates of a cell make: whole weights of the policy and the critic, metrics, V*.

    ``engine`` is that of one of several processes; ``None``: the one process that these are compared with.
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
    cell, options = CASES[name], {}
    config, trainer = ALGORITHMS[cell["algorithm"]]
    rows, processes = cell["rows"], 1 if engine is None else int(os.environ["WORLD_SIZE"])
    size = rows if engine is None else 2
    if engine is not None:
        allow_on_the_cpu(engine)
        options = dict({**ENGINES, **SETTINGS}[engine])
    envs = [ENVIRONMENTS[env] for env in cell["envs"]]
    torch.manual_seed(0)  # LoRA's first factors
    made = small_trainer(
        folder,
        envs[0] if len(envs) == 1 else envs,
        config=config,
        trainer=trainer,
        model=saved_model() if cell["by_name"] else None,
        peft_config=LoraConfig(**LORA) if weights == "LoRA" else None,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=rows // processes // size,
        **{**_STEP, **cell["options"], **options, **changes},
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


# What each process runs: the cells of cells.json, [job, case, weights, engine] each; one that fails leaves its error


def resumed(run: Path, name: str, weights: str, engine: str) -> dict[str, Any]:
    """The weights of the unbroken run, from two processes, and of the one that went on from the second checkpoint."""
    changes: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    changes |= {"refresh_steps": 1} if name == "A*-PO" else {}
    made = {}
    if os.environ["WORLD_SIZE"] == "2":
        trainer = make_trainer(run, name, weights, engine, **changes)
        trainer.train()
        made["unbroken"] = learnt(trainer)
        trainer.save_model(str(run / "export"))
    again = make_trainer(run, name, weights, engine, **changes)
    again.train(resume_from_checkpoint=str(run / "checkpoint-2"))
    assert again.state.global_step == 3
    return {**made, "resumed": learnt(again)}


def served(run: Path, name: str, weights: str, engine: str) -> dict[str, Any]:
    """What updates with a server log, how many turns there were, and how often FSDP2 gathered a whole module."""
    patch, gathered = pytest.MonkeyPatch(), []
    install_fake_vllm(patch)
    unshard = FSDPModule.unshard
    patch.setattr(FSDPModule, "unshard", lambda self, *args: gathered.append("module") or unshard(self, *args))
    allow_on_the_cpu(engine)
    options = {key: value for key, value in SERVER.items() if key != "ddp_backend"}
    torch.manual_seed(0)
    adapter = None if weights == "all" else LoraConfig(**LORA)
    trainer = small_trainer(run, lottery(draws=9), peft_config=adapter, **options, **ENGINES[engine])
    last = LastRollout(trainer)
    trainer.train()
    patch.undo()
    turns = [len(trajectory.turns) for trajectory in last.played]
    metrics = [row for row in trainer.state.log_history if "loss" in row]
    return {"metrics": metrics, "turns": turns, "gathered": len(gathered)}


JOBS = {"updates": trained, "resumed": resumed, "served": served}


def main(folder: Path) -> None:
    """All cells in one launch, since it costs more than a cell."""
    saved_model()
    for job, *cell in json.loads((folder / "cells.json").read_text(encoding="utf-8")):
        place = " ".join([job, *cell])
        try:
            made = JOBS[job](folder / place, *cell)
        except Exception:
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{place} {os.environ['WORLD_SIZE']} {os.environ['RANK']}.pt")
    torch.distributed.barrier()  # the first process must not leave before the other has written
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
