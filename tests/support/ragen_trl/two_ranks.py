"""What each process of the two-process tests runs: updates of every case, play with a vLLM server."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOSConfig, evaluate
from ragen_trl.training.reference import Reference
from tests.support.quick import libraries_are_settled
from tests.support.ragen_trl.equivalence import STEP, Alone, Awake
from tests.support.ragen_trl.fake_vllm import SERVER, install_fake_vllm
from tests.support.ragen_trl.trainers import LAKE, LastRollout, lottery, parameters, small_model, small_trainer


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


STAGE_1: dict[str, Any] = {"num_train_seeds": 12, "reference_samples": 3, "max_reference_samples": 5}


def case(
    envs: str = "draws", rows: int = 12, algorithm: str = "StarPO", by_name: bool = False, **options: Any
) -> dict[str, Any]:
    """What is trained. 12 rows are 3 groups of 4: of two processes the second group has two members on either."""
    return {"algorithm": algorithm, "envs": envs.split(), "rows": rows, "by_name": by_name, "options": options}


def make_trainer(folder: Path, cell: dict[str, Any], processes: int) -> Any:
    """A trainer of plain SGD steps on ``cell["rows"]`` trajectories; on two processes in micro-batches of 2."""
    config, trainer = ALGORITHMS[cell["algorithm"]]
    rows, size = cell["rows"], 2 if processes > 1 else cell["rows"]
    options = {**STEP, "entropy_coef": 0.01, **cell["options"]}
    if processes == 1:  # what is compared with two processes that play a few at a time
        options.pop("rollout_batch_size", None)
    envs = [ENVIRONMENTS[name] for name in cell["envs"]]
    return small_trainer(
        folder,
        envs[0] if len(envs) == 1 else envs,
        config=config,
        trainer=trainer,
        ddp_backend="gloo" if processes > 1 else None,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=rows // processes // size,
        **options,
    )


def result(trainer: Any, last: LastRollout) -> dict[str, Any]:
    """What two processes must agree on with one."""
    return {
        "parameters": parameters(trainer),
        "metrics": trainer.state.log_history,
        "turns": [len(trajectory.turns) for trajectory in last.played],
        "values": getattr(trainer, "values", None),
        "trained": [int(part["completion_mask"].any(dim=1).sum()) for part in last.micro_batches],
    }


# One vLLM server for both processes, which play unequal numbers of turns

# Five episodes, played four at a time: of the last one the second process has nothing.
FIVE: dict[str, Any] = {"num_train_seeds": 5, "reference_samples": 1, "max_reference_samples": 3}


def served(folder: Path) -> dict[str, Any]:
    """Two updates on episodes of up to nine draws and an evaluation; A*-PO with shares of different size, one empty."""
    install_fake_vllm(pytest.MonkeyPatch())
    trainer = small_trainer(folder / "starpo", lottery(draws=9), **SERVER)
    last = LastRollout(trainer)
    trainer.train()
    evaluated = evaluate(trainer.policy(0.0), lottery(draws=3), trainer.args, episodes=4)
    found = {"starpo": result(trainer, last) | {"evaluated": evaluated.mean_return}}
    options = {**SERVER, "num_generations": 1, "max_steps": 2, "rollout_batch_size": 1, **FIVE}
    options |= {"config": AStarPOConfig, "trainer": AStarPOTrainer}
    trainer = small_trainer(folder / "astar_po", lottery(draws=3), **options)
    last = LastRollout(trainer)
    trainer.train()
    return {**found, "astar_po": result(trainer, last)}


def main(folder: Path) -> None:
    """All cases in one launch: to start two processes takes longer than any of them."""
    libraries_are_settled()
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    for name, cell in cases.items():
        trainer = make_trainer(folder / f"two {name}", cell, processes=2)
        assert trainer.accelerator.num_processes == 2
        last = LastRollout(trainer)
        trainer.train()
        torch.save(result(trainer, last), folder / f"{name} {trainer.accelerator.process_index}.pt")
    torch.save(served(folder), folder / f"vllm {os.environ['RANK']}.pt")
    if os.environ["RANK"] == "0":
        (folder / "digests.txt").write_text(Reference(small_model()).fingerprint())
    torch.distributed.barrier()  # the first process must not leave before the other has written
    # Not destroy_process_group: gloo was seen to wait there for ever once the other rank had left.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
