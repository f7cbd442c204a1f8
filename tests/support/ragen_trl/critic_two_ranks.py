"""What each process of the critic's two-process test runs: an update with unequal shares, then a step of the policy."""

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from ragen_trl.batching.batch import collate
from tests.support.quick import libraries_are_settled
from tests.support.ragen_trl.critics import GENTLE, PAD, episodes, lesson, lora_policy, make_critic, weights
from tests.support.ragen_trl.trainers import small_model


def update(kind: str, share: int, folder: Path, accelerator: Accelerator) -> None:
    """The first process holds ``share`` of 8 episodes; the policy is wrapped in DDP while the critic works."""
    policy = small_model() if kind == "model" else lora_policy(warm=True)
    critic = make_critic(policy, accelerator=accelerator, max_grad_norm=0.1, **GENTLE)
    wrapped = accelerator.prepare(policy)
    rank, rows = accelerator.process_index, episodes(8)
    mine = slice(0, share) if rank == 0 else slice(share, 8)
    width = max((len(row.token_ids) for row in rows[mine]), default=0)
    given = {key: value[mine, :width] for key, value in lesson(rows).items()}
    critic.values(rows[mine], [True] * len(rows[mine]))
    metrics = critic.update(rows[mine], **given, clip=0.2)
    if accelerator.is_main_process:
        torch.save({"metrics": metrics, "weights": weights(critic)}, folder / f"{kind}-{share}.pt")
    tokens = collate(rows[rank : rank + 1], PAD)["input_ids"]
    wrapped(input_ids=tokens).logits.square().mean().backward()
    for name, value in policy.named_parameters():
        if value.requires_grad:
            both = accelerator.gather(value.grad[None])  # DDP still averages the policy's gradients
            torch.testing.assert_close(both[0], both[1], msg=name)
            assert "lora_A" in name or both.any(), name


def main(folder: Path) -> None:
    """Both kinds of critic, with 5 + 3 and with 8 + 0 episodes."""
    libraries_are_settled()
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    for kind in ("model", "adapter"):
        for share in (5, 8):
            update(kind, share, folder, accelerator)
    # Not destroy_process_group: gloo was seen to wait there for ever once the other rank had left.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
