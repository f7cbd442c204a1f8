"""Two processes take the step of one, groups straddling ranks and unequal shares of kept rows included."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ragen_trl.trainers import lottery, parameters, small_trainer

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("filter_ratio", [1.0, 0.4])
def test_two_processes_take_the_step_of_one(tmp_path: Path, filter_ratio: float) -> None:
    """24 trajectories in 6 groups of 4. A filter of 0.4 keeps 2 groups, wherever they were played."""
    single = small_trainer(
        tmp_path,
        lottery(),
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0.0,
        max_steps=1,
        per_device_train_batch_size=24,
        filter_ratio=filter_ratio,
    )
    single.train()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    worker = ["-m", "tests.ragen_trl.two_ranks", str(tmp_path), str(filter_ratio)]
    done = subprocess.run(
        [*launch, *worker],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    double = torch.load(tmp_path / "parameters.pt")
    for name, value in parameters(single).items():
        torch.testing.assert_close(double[name], value, rtol=1e-4, atol=1e-6, msg=name)
    metrics = torch.load(tmp_path / "metrics.pt", weights_only=False)
    for key in ("success", "return", "reward", "filter/in_group_std", "filter/kept_groups", "turns", "grad_norm"):
        assert metrics[key] == pytest.approx(single.state.log_history[0][key], rel=1e-4), key
