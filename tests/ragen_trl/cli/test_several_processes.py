"""`python -m ragen_trl train` on two connected processes: one run folder, one voice, stopped and gone on with."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, local
from typing import Any

import pytest
import yaml

from ragen_trl import StarPOConfig
from ragen_trl.cli import options, processes
from ragen_trl.cli.main import main
from ragen_trl.cli.options import parse
from ragen_trl.cli.processes import is_main, launched, play_together
from ragen_trl.cli.training_run import train
from ragen_trl.config.commands import RunArguments
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import EpisodeRecord
from ragen_trl.imitation.fine_tuning import WarmStartConfig, _sft_config
from ragen_trl.policies.scripted import ScriptedPolicy
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


def test_an_uneven_batch_of_demonstrations_is_refused_with_the_numbers(tmp_path: Path) -> None:
    class OfThree(StarPOConfig):
        world_size = 3  # type: ignore[assignment]

    args = OfThree(output_dir=str(tmp_path), use_cpu=True, bf16=False, num_generations=2)
    with pytest.raises(OptionError, match="demo_batch_size is 16, which 3 processes cannot share"):
        _sft_config(tmp_path, args, WarmStartConfig(), examples=32)


def test_without_a_launch_there_is_one_process() -> None:
    assert is_main() and launched() == 1


class OfOneServer(ScriptedPolicy):
    """Plays as with one vLLM server for all: to get the weights and to take a turn, every process waits for the others.

    Args:
        barrier: What they wait at; it breaks if one of them does not come.
    """

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(lambda turns, random: "left")
        self._barrier = barrier
        self._playing: list[bool] = []
        self.batches: list[int] = []

    def elsewhere(self) -> "OfOneServer":
        """The same policy in another process."""
        other = OfOneServer(self._barrier)
        other._playing = self._playing
        return other

    def begin(self, seeds: Any) -> None:
        self._barrier.wait()
        self.batches.append(len(seeds))
        super().begin(seeds)

    def goes_on(self, playing: bool) -> bool:
        self._playing.append(playing)
        self._barrier.wait()
        anyone = any(self._playing)
        if self._barrier.wait() == 0:
            self._playing.clear()
        self._barrier.wait()
        return anyone


@pytest.mark.parametrize(("episodes", "batches"), [(257, [[128, 1], [128, 0]]), (1, [[1], [0]])])
def test_processes_with_one_server_play_equally_often(
    episodes: int, batches: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: of 257 episodes one process played 2 batches and the other 1, and the first waited for ever."""
    barrier, here, gathered = Barrier(2, timeout=5), local(), list[Any]()

    def gather(mine: list[Any]) -> list[Any]:
        gathered.extend(mine)
        barrier.wait()
        return list(gathered)

    monkeypatch.setattr("accelerate.utils.gather_object", gather)
    monkeypatch.setattr(processes, "launched", lambda: 2)
    monkeypatch.setattr(processes, "rank", lambda: here.rank)
    args = StarPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_turns=1, env_workers=0)
    first = OfOneServer(barrier)
    policies = [first, first.elsewhere()]

    def run(process: int) -> list[EpisodeRecord]:
        here.rank = process
        return play_together(policies[process], "ragen/Bandit-v0", args, episodes)

    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(run, range(2))
    assert [policy.batches for policy in policies] == batches
    assert [record.seed for record in left] == [record.seed for record in right] == list(range(episodes))
    assert left == right


@pytest.mark.parametrize("name", ["num_processes", "num-processes"])
def test_the_number_is_read_in_both_spellings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with dashes a run trained on one process, and its config.yaml said two."""
    asked: list[int] = []
    monkeypatch.setattr("ragen_trl.cli.main.on_processes", lambda number, *_: asked.append(number) or 0)
    config = tmp_path / "run.yaml"
    config.write_text(f"{name}: 2\n")
    for argv in ([f"--{name}", "2"], [f"--{name}=2"], ["--config", str(config)]):
        assert main(["train", *argv]) == 0
    assert main(["train", "--config", str(config), f"--{name}", "3"]) == 0
    assert main(["train", "--config", str(config), "--dry-run"]) == 0
    assert asked == [2, 2, 2, 3, 1]


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


@pytest.mark.parametrize("mistake", [["--max_turn", "3"], ["--env", "ragen/Lake-v0"], ["--max_turns", "three"]])
def test_a_mistake_in_the_options_is_said_by_the_first_process_alone(
    mistake: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: with two processes it was printed twice, the second time as "process 1: …"."""
    assert main_status(["train", *mistake]) == 2
    assert capsys.readouterr().err.count("error:") == 1
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main_status(["train", *mistake]) == 2
    assert capsys.readouterr().err == ""


def main_status(argv: list[str]) -> object:
    """The exit status of a command."""
    try:
        return main(argv)
    except SystemExit as end:
        return end.code


def test_what_connects_the_processes_is_not_written_into_the_file_that_repeats_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a run of two processes on a CPU, repeated where there is a GPU, stayed on the CPU."""
    monkeypatch.setattr(options, "launched", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert options._of_a_launch() == {"use_cpu": True, "ddp_backend": "gloo", "ddp_timeout": 86_400}
    # Without the backend, which would connect this process to others.
    monkeypatch.setattr(options, "_of_a_launch", lambda: {"use_cpu": True, "ddp_timeout": 86_400})
    (_, _, args), kept = parse("train", {}, ["--bf16", "false"], RunArguments, WarmStartConfig)
    assert (args.use_cpu, args.ddp_timeout) == (True, 86_400)
    assert not {"use_cpu", "ddp_timeout"} & kept.keys()
    (_, _, args), kept = parse("train", {"ddp_timeout": 60}, ON_CPU, RunArguments, WarmStartConfig)
    assert (kept["use_cpu"], kept["ddp_timeout"], args.ddp_timeout) == (True, 60, 60)
