"""`python -m ragen_trl train` on two connected processes: one run folder, one voice, stopped and gone on with."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ragen_trl.cli.main import main
from tests.support.project import ROOT

# On one process 16 trajectories a rollout, on two 8 each.
RUN = [
    *("--env", "ragen/Bandit-v0", "--demonstrations", "32", "--demo_batch_size", "16", "--eval_episodes", "9"),
    *("--num_generations", "4", "--max_steps", "3", "--save_steps", "1", "--filter_ratio", "1.0", "--max_turns", "1"),
]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


@pytest.fixture(autouse=True)
def level_of_logging() -> Iterator[None]:
    """A process that is not the main one is silenced for good; here the same process goes on with other tests."""
    logger = logging.getLogger("ragen_trl")
    before = logger.level
    yield
    logger.setLevel(before)


def start(folder: Path) -> subprocess.Popen[str]:
    command = [*TORCHRUN, "-m", "ragen_trl", "train", *RUN, "--per_device_train_batch_size", "8", "--use_cpu", "true"]
    command += ["--output_dir", str(folder)]
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def form(value: Any) -> Any:
    """The keys of nested objects."""
    return {key: form(each) for key, each in value.items()} if isinstance(value, dict) else None


def test_two_processes_make_the_run_folder_of_one(tmp_path: Path) -> None:
    """Under torchrun, which `accelerate launch` uses; stopped by SIGINT to the main process, and gone on with."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["train", *RUN, "--per_device_train_batch_size", "16", "--output_dir", str(one)]) == 0

    process = start(two)
    wait_for(two / "checkpoint-1" / "trainer_state.json", process)
    workers = psutil.Process(process.pid).children()
    (first,) = (each for each in workers if each.environ().get("RANK") == "0")
    first.send_signal(signal.SIGINT)
    said, error = process.communicate(timeout=120)
    assert process.returncode != 0
    assert error.count("Stopped after step") == error.count("To go on, run the same command again.") == 1
    for phase in ("evaluating random play", "random: success", "warm start:", "training: 3 updates"):
        assert said.count(phase) == 1
    assert not (two / "summary.json").exists()

    process = start(two)
    said, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert said.count("going on from") == said.count("summary:") == 1
    assert "warm start:" not in said

    alone, together = summary_of(one), summary_of(two)
    more = together.pop("config").keys() - alone.pop("config").keys()
    assert more == {"use_cpu", "ddp_timeout"}
    assert form(together) == form(alone)
    assert (alone["num_processes"], together["num_processes"]) == (1, 2)
    for policy, result in alone["results"].items():
        assert together["results"][policy]["n"] == result["n"] == 9
    for policy in ("random", "oracle"):  # the same start states, divided
        nested = {"pass_at_k": 0}  # approx compares no dictionaries in dictionaries
        left, right = ({**each["results"][policy], "seconds": 0.0, **nested} for each in (alone, together))
        assert left == pytest.approx(right)
    history = json.loads((two / "history.json").read_text(encoding="utf-8"))
    rows = [row for row in history if "success" in row]
    assert [(row["step"], row["filter/trajectories_used"]) for row in rows] == [(1, 16), (2, 16), (3, 16)]
    assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}
    assert json.loads((two / "warm_start" / "warm_start.json").read_text())["episodes"] == [32]

    process = start(two)  # a mistake is said once, and nobody waits for the others
    _, error = process.communicate(timeout=120)
    assert process.returncode != 0
    assert error.count("holds a finished run") == 1
