"""What does not depend on the process: keys, fingerprints, and a run that was killed in stage 1 and started again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ragen_trl.trainers.reference import Reference
from tests.support.project import ROOT
from tests.support.ragen_trl.astar_runs import astar, cached
from tests.support.ragen_trl.references import KEY
from tests.support.ragen_trl.trainers import logged, parameters, small_model


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a process that found what it could and was killed; one for all tests, for it starts slowly."""
    folder = tmp_path_factory.mktemp("elsewhere")
    small_model().save_pretrained(folder / "model")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ragen_trl.astar_elsewhere", str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "99"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    return folder


def test_digests_and_fingerprints_are_the_same_in_another_process(left: Path) -> None:
    """The model was saved and loaded in between."""
    digest, fingerprint = (left / "found.txt").read_text().split()
    assert digest == KEY.digest()
    assert fingerprint == Reference(small_model()).fingerprint()


def test_a_run_killed_in_stage_1_continues_where_it_was(left: Path) -> None:
    """Of 32 episodes 16 are stored, and 16 are still to be played."""
    assert sum(map(len, cached(left / "run").values())) == 16
    resumed = astar(left / "run", max_steps=1)
    resumed.train()
    assert resumed.values[0].played == 16
    assert logged(resumed, "astar/reference_episodes") == [32]  # the killed run's are counted, too
    assert "32 episodes (16 of them from the cache), " in resumed.values[0].in_words()
    unbroken = astar(left / "unbroken", max_steps=1)
    unbroken.train()
    assert resumed.values[0].starts == unbroken.values[0].starts
    for name, value in parameters(unbroken).items():
        assert torch.equal(value, parameters(resumed)[name]), name
