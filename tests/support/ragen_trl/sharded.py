"""Training on two CPU processes, each with all of the model (DDP) or with a part of it (FSDP2, DeepSpeed).

Accelerate and DeepSpeed divide no model on CPUs; `allow_on_the_cpu` lifts that, with what no user sets. A cell of the
table is a case, all weights or LoRA, and an engine; `trained` makes its updates, on one process or as one of two, and
returns what both must agree on.
"""

import gc
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

from ragen_trl import AStarPOConfig, AStarPOTrainer, CollapseMonitor, StarPOConfig, StarPOSConfig, evaluate
from ragen_trl.training.reference import Reference
from tests.support.quick import libraries_are_settled
from tests.support.ragen_trl.equivalence import Alone, Awake
from tests.support.ragen_trl.fake_vllm import LORA, SERVER, install_fake_vllm
from tests.support.ragen_trl.trainers import LAKE, LastRollout, limits_of, lottery, small_model, small_trainer


class OwnLoss(Awake):
    """Logs the entropy by itself, in place of the trainer's."""

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        logprobs, entropies = self.score(model, inputs)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        self.record_means({"entropy": entropies}, mask)
        return -(logprobs * mask * inputs["advantages"][:, None]).sum() / inputs["step_tokens"]


ALGORITHMS: dict[str, tuple[Any, Any]] = {
    "StarPO": (StarPOConfig, Awake),
    "StarPO-S": (StarPOSConfig, Awake),
    "StarPO in parts": (StarPOConfig, Alone),
    "own loss": (StarPOConfig, OwnLoss),
    "A*-PO": (AStarPOConfig, AStarPOTrainer),
}
# Episodes of one turn, also without a win; of one to three, or to nine, by chance; of two, with penalties.
ENVIRONMENTS: dict[str, Any] = {
    "lottery": lottery(),
    "nothing": lottery(win=0.0),
    "draws": lottery(draws=3),
    "long": lottery(draws=9),
    "lake": LAKE,
}
_ZERO: dict[str, Any] = {
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": "auto",  # without it, DeepSpeed clips at 1
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
DDP: dict[str, Any] = {"ddp_backend": "gloo"}
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
_ENTROPY: dict[str, Any] = {"entropy_coef": 0.01}
_CRITIC: dict[str, Any] = {"critic_learning_rate": 1e-3, **_ENTROPY}
_STAGE_1: dict[str, Any] = {"num_train_seeds": 12, "reference_samples": 3, "max_reference_samples": 5}
_SEVERAL: dict[str, Any] = {"num_generations": 2, "max_completion_length": 600}


def case(
    envs: str = "draws", rows: int = 12, algorithm: str = "StarPO", by_name: bool = False, **options: Any
) -> dict[str, Any]:
    """What is trained. 12 rows are 3 groups of 4: of two processes the second group has two members on either."""
    return {"algorithm": algorithm, "envs": envs.split(), "rows": rows, "by_name": by_name, "options": options}


DIVIDED: dict[str, dict[str, Any]] = {
    "KL": case(by_name=True, beta=0.2),
    "StarPO-S": case(rows=24, algorithm="StarPO-S", filter_ratio=0.4),
    "no group": case("nothing", filter_ratio=0.4, weight_decay=0.5),
    "turns": case("long", rows=4, **_SEVERAL),
    "bi_level_gae": case(by_name=True, advantage="bi_level_gae", gae_lambda=0.9, **_CRITIC),
    "gae and filter": case(rows=24, advantage="gae", filter_ratio=0.4, **_CRITIC),
    "A*-PO": case(algorithm="A*-PO", by_name=True, **_STAGE_1, refresh_steps=2, beta2=0.1, kl_coef=0.1),
}
"""What every engine trains, by the name of its row in the table."""
CASES: dict[str, dict[str, Any]] = {
    **DIVIDED,
    "batch std": case(scale_rewards="batch", loss_type="dapo", **_ENTROPY),
    "gigpo": case(advantage="gigpo", **_ENTROPY),
    "turn_gae": case(advantage="turn_gae", turn_lambda=0.9, **_CRITIC),
    "parts and filter": case(rows=24, algorithm="StarPO in parts", filter_ratio=0.4, **_ENTROPY),
    "parts and gae": case(algorithm="StarPO in parts", advantage="gae", gae_lambda=0.9, **_CRITIC),
    "parts, twice": case(algorithm="StarPO in parts", num_iterations=2, **_ENTROPY),
    "refill": case("lottery", num_generations=2, max_refills=4),
    "few at a time": case("long", 8, **{**_SEVERAL, "num_generations": 4}, rollout_batch_size=3),
    "own loss": case(algorithm="own loss"),  # regression: the other process waited for ever
    "environments and filter": case(
        "lake draws", 24, algorithm="StarPO-S", filter_ratio=0.5, **limits_of(lottery(draws=3))
    ),
    # 10 rows in batches of 4: on two processes the last batches repeat six of them.
    "evaluation": case(
        eval_strategy="steps", eval_steps=1, num_eval_seeds=10, per_device_eval_batch_size=4, eval_on_start=True
    ),
    # Two at a time next to six of one process.
    "A*-PO in groups": case(
        "lottery",
        algorithm="A*-PO",
        **{**_STAGE_1, "num_train_seeds": 6},
        num_generations=4,
        filter_ratio=0.7,
        rollout_batch_size=2,
    ),
}
"""What DDP trains."""

WEIGHTS = ("all", "LoRA")


def trained(folder: Path, name: str, weights: str, engine: str | None, **changes: Any) -> dict[str, Any]:
    """What the updates of a cell make: whole weights of the policy and the critic, what was logged, V*.

    And of the last rollout, the turns of each trajectory and the trained rows of each micro-batch. ``engine`` is that
    of one of several processes; ``None``: the one process that these are compared with.
    """
    trainer = make_trainer(folder, name, weights, engine, **changes)
    last = LastRollout(trainer)
    trainer.train()
    return {**learnt(trainer), **seen(trainer, last)}


def seen(trainer: Any, last: LastRollout) -> dict[str, Any]:
    """What training has shown; see `trained`."""
    return {
        "metrics": [row for row in trainer.state.log_history if "loss" in row],
        "evaluations": [row for row in trainer.state.log_history if "eval_success" in row],
        "values": getattr(trainer, "values", None),
        "turns": [len(trajectory.turns) for trajectory in last.played],
        "trained": [int(part["completion_mask"].any(dim=1).sum()) for part in last.micro_batches],
    }


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
    cell = CASES[name]
    config, trainer = ALGORITHMS[cell["algorithm"]]
    rows, processes = cell["rows"], 1 if engine is None else int(os.environ["WORLD_SIZE"])
    size, options = rows if engine is None else 2, {**_STEP, **cell["options"]}
    if engine is None:  # what is compared with processes that play a few at a time
        options.pop("rollout_batch_size", None)
    else:
        allow_on_the_cpu(engine)
        options |= {"DDP": DDP, **ENGINES, **SETTINGS}[engine]
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
        **{**options, **changes},
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
    if engine == "DDP":
        return
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


# Five episodes, played four at a time: of the last one the second process has nothing.
_FIVE: dict[str, Any] = {
    **{"num_train_seeds": 5, "reference_samples": 1, "max_reference_samples": 3},
    **{"num_generations": 1, "max_steps": 2, "rollout_batch_size": 1},
}


def served(run: Path, name: str, weights: str, engine: str) -> dict[str, Any]:
    """What two updates with one server make and log, and how often FSDP2 gathered a whole module."""
    patch, gathered = pytest.MonkeyPatch(), []
    install_fake_vllm(patch)
    unshard = FSDPModule.unshard
    patch.setattr(FSDPModule, "unshard", lambda self, *args: gathered.append("module") or unshard(self, *args))
    allow_on_the_cpu(engine)
    options = {**SERVER, **{"DDP": DDP, **ENGINES}[engine], **(_FIVE if name == "A*-PO" else {})}
    torch.manual_seed(0)
    adapter = None if weights == "all" else LoraConfig(**LORA)
    config, kind = ALGORITHMS[CASES[name]["algorithm"]]
    envs = lottery(draws=3 if name == "A*-PO" else 9)
    trainer = small_trainer(run, envs, config, kind, peft_config=adapter, **options)
    last = LastRollout(trainer)
    trainer.train()
    evaluated = []
    if engine == "DDP":
        evaluated = [evaluate(trainer.policy(0.0), envs, trainer.args, episodes=4).mean_return]
    patch.undo()
    return {**learnt(trainer), **seen(trainer, last), "gathered": len(gathered), "evaluated": evaluated}


JOBS = {"updates": trained, "resumed": resumed, "served": served}


def main(folder: Path) -> None:
    """All cells in one launch, since it costs more than a cell."""
    libraries_are_settled()
    saved_model()
    for job, *cell in json.loads((folder / "cells.json").read_text(encoding="utf-8")):
        place = " ".join([job, *cell])
        gc.collect()  # `LastRollout` and its trainer hold each other, and ZeRO-3 would divide the next model that loads
        try:
            made = JOBS[job](folder / place, *cell)
        except (Exception, SystemExit):
            made = {"error": traceback.format_exc()}
        torch.save(made, folder / f"{place} {os.environ['WORLD_SIZE']} {os.environ['RANK']}.pt")
    (folder / f"fingerprint {os.environ['RANK']}.txt").write_text(Reference(small_model()).fingerprint())
    torch.distributed.barrier()  # the first process must not leave before the other has written
    # Not destroy_process_group: gloo was seen to wait there for ever once the other rank had left.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
