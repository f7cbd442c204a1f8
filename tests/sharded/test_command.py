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

import pytest
import yaml

from ragen_trl.cli import processes
from ragen_trl.cli.main import main
from ragen_trl.cli.options import parse
from ragen_trl.cli.training_run import train
from ragen_trl.config.commands import RunArguments
from ragen_trl.errors import OptionError
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from tests.support.project import ROOT

# On one process 16 trajectories a rollout, on two 8 each.
RUN = [
    *("--env", "ragen/Bandit-v0", "--demonstrations", "32", "--demo_batch_size", "16", "--eval_episodes", "9"),
    *("--num_generations", "4", "--max_steps", "3", "--save_steps", "1", "--filter_ratio", "1.0", "--max_turns", "1"),
]
ON_CPU = ["--use_cpu", "true", "--bf16", "false"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


@pytest.fixture(autouse=True)
def level_of_logging() -> Iterator[None]:
    """A process that is not the main one is silenced for good; here the same process goes on with other tests."""
    logger = logging.getLogger("ragen_trl")
    before = logger.level
    yield
    logger.setLevel(before)


def start(folder: Path, *before: str) -> subprocess.Popen[str]:
    command = [*before, "-m", "ragen_trl", "train", *RUN, "--per_device_train_batch_size", "8"]
    command += ["--output_dir", str(folder), *([] if before else ["--num_processes", "2"])]
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
    """Stopped by Ctrl-C to the first process and gone on with by torchrun, which is what `accelerate launch` uses."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["train", *RUN, "--per_device_train_batch_size", "16", "--output_dir", str(one)]) == 0

    process = start(two)
    wait_for(two / "checkpoint-1" / "trainer_state.json", process)
    process.send_signal(signal.SIGINT)
    said, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert error.count("Stopped after step") == error.count("To go on, run the same command again.") == 1
    for phase in ("evaluating random play", "random: success", "warm start:", "training: 3 updates"):
        assert said.count(phase) == 1
    assert not (two / "summary.json").exists()

    process = start(two, *TORCHRUN)
    said, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert said.count("going on from") == said.count("summary:") == 1
    assert "warm start:" not in said

    alone, together = summary_of(one), summary_of(two)
    more = together.pop("config").keys() - alone.pop("config").keys()
    assert more == {"use_cpu", "ddp_backend", "ddp_timeout"}  # how they are connected
    assert form(together) == form(alone)
    assert not more & yaml.safe_load((two / "config.yaml").read_text(encoding="utf-8")).keys()
    assert (alone["num_processes"], together["num_processes"]) == (1, 2)
    assert together["trajectories"] == alone["trajectories"] == {"sampled": 48, "used": 48}
    for policy, result in alone["results"].items():
        assert together["results"][policy]["n"] == result["n"] == 9
    for policy in ("random", "oracle"):  # the same start states, divided
        nested = {"pass_at_k": 0, "faults": 0, "task_types": 0}  # approx compares no dictionaries in dictionaries
        left, right = ({**each["results"][policy], "seconds": 0.0, **nested} for each in (alone, together))
        assert left == pytest.approx(right)
    history = json.loads((two / "history.json").read_text(encoding="utf-8"))
    assert [row["step"] for row in history if "success" in row] == [1, 2, 3]
    assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}
    assert json.loads((two / "warm_start" / "warm_start.json").read_text())["demonstrations"] == 32

    process = start(two)  # a mistake is said once, and nobody waits for the others
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert error.count("error:") == error.count("holds a finished run") == 1


def test_a_number_that_was_not_launched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, running in ((1, 1), (1, 4), (4, 4)):
        monkeypatch.setenv("WORLD_SIZE", str(running))
        processes.check_number(number)
    with pytest.raises(OptionError, match="num_processes is 3, but 4 of this command run; leave it out"):
        processes.check_number(3)
    monkeypatch.delenv("WORLD_SIZE")
    (run, warm, args), _ = parse("train", {"num_processes": 2}, ON_CPU, RunArguments, WarmStartConfig)
    args.output_dir = str(tmp_path / "run")
    with pytest.raises(OptionError, match="num_processes is 2, but 1 of this command run"):
        train(run, warm, args, print)
    assert not (tmp_path / "run").exists()
