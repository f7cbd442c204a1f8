"""What each process of the two-process tests runs: an update or two of every case, then play with a vLLM server."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOSConfig
from tests.support.quick import libraries_are_settled
from tests.support.ragen_trl.equivalence import Alone, Awake
from tests.support.ragen_trl.trainers import LAKE, LastRollout, lottery, parameters, small_trainer
from tests.support.ragen_trl.vllm_two_ranks import served


class OwnLoss(Awake):
    """Logs the entropy by itself, on the first process alone, as the pages say that a row of the log is its own."""

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        logprobs, entropies = self.score(model, inputs)
        if self.is_world_process_zero():
            self.record("train", {"entropy": entropies.mean().item()})
        mask = inputs["completion_mask"] * inputs["tool_mask"]
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


def make_trainer(folder: Path, case: dict[str, Any], processes: int) -> Any:
    """A trainer of plain SGD steps on ``case["rows"]`` trajectories; on two processes in micro-batches of 2."""
    config, trainer = ALGORITHMS[case["algorithm"]]
    rows, size = case["rows"], 2 if processes > 1 else case["rows"]
    options = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1, **case.get("options", {})}
    if processes == 1:  # what is compared with two processes that play a few at a time
        options.pop("rollout_batch_size", None)
    envs = [ENVIRONMENTS[name] for name in case["envs"]]
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
        "trained": [int(part["completion_mask"].any(dim=1).sum()) for part in trainer._buffered_inputs],
    }


def main(folder: Path) -> None:
    """All cases in one launch: to start two processes takes longer than any of them."""
    libraries_are_settled()
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    for name, case in cases.items():
        trainer = make_trainer(folder / f"two {name}", case, processes=2)
        assert trainer.accelerator.num_processes == 2
        last = LastRollout(trainer)
        trainer.train()
        torch.save(result(trainer, last), folder / f"{name} {trainer.accelerator.process_index}.pt")
    torch.save(served(folder), folder / f"vllm {os.environ['RANK']}.pt")
    torch.distributed.barrier()  # the first process must not leave before the other has written
    # Not destroy_process_group: gloo was seen to wait there for ever once the other rank had left.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
