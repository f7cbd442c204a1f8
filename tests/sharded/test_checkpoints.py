"""Checkpoints of a divided model: gone on with bit by bit, on another number of processes, and as a plain folder."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.sharded import ENGINES, WEIGHTS, deviation
from tests.support.ragen_trl.sharded_killed import killed, unbroken
from tests.support.ragen_trl.trainers import small_model

pytestmark = pytest.mark.timeout(1800)  # all cells are in the time of the first test

SAVED = (*ENGINES, "FSDP2, sharded state")
CELLS = [(name, weights, engine) for engine in SAVED for name in ("gae", "A*-PO") for weights in WEIGHTS]
MODULE = "tests.support.ragen_trl.sharded_resume"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes, and then three, have left the results of all cells."""
    path = tmp_path_factory.mktemp("checkpoints")
    (path / "cells.json").write_text(json.dumps(CELLS), encoding="utf-8")
    on_two_processes(MODULE, path, timeout=1500)
    on_two_processes(MODULE, path, timeout=1500, processes=3)
    return path


def result(folder: Path, cell: tuple[str, str, str], processes: int, rank: int = 0) -> dict[str, Any]:
    """What a process has left of a cell."""
    made: dict[str, Any] = torch.load(folder / f"{' '.join(cell)} {processes} {rank}.pt")
    return made


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_a_resumed_run_is_the_unbroken_one_bit_by_bit(folder: Path, cell: tuple[str, str, str]) -> None:
    for rank in (0, 1):
        made = result(folder, cell, 2, rank)
        assert "error" not in made, made["error"]
        assert deviation(made["resumed"], made["unbroken"]) == 0


@pytest.mark.parametrize("cell", [cell for cell in CELLS if "FSDP2" in cell[2]], ids=" ".join)
def test_two_processes_checkpoint_goes_on_with_three(folder: Path, cell: tuple[str, str, str]) -> None:
    ranks = [result(folder, cell, 3, rank) for rank in range(3)]
    assert not any("error" in made for made in ranks), ranks[0].get("error")
    assert 0 <= deviation(ranks[0]["resumed"], result(folder, cell, 2)["unbroken"]) < 2e-6
    assert deviation(ranks[2]["resumed"], ranks[0]["resumed"]) == 0


@pytest.mark.parametrize("cell", [cell for cell in CELLS if "ZeRO" in cell[2]], ids=" ".join)
def test_deepspeed_wants_as_many_processes(folder: Path, cell: tuple[str, str, str]) -> None:
    """Regression: one process of three failed, and the others waited for it."""
    for rank in range(3):
        error = result(folder, cell, 3, rank)["error"]
        assert "was saved by DeepSpeed on 2 processes, and this launch has 3; resume with DeepSpeed on 2" in error


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_the_written_model_is_a_plain_folder(folder: Path, cell: tuple[str, str, str]) -> None:
    """Regression: with sharded state dicts nothing was written, and nothing said."""
    name, weights, engine = cell
    export = folder / f"{name} {weights} {engine}" / "export"
    expected = result(folder, cell, 2)["unbroken"]["parameters"]
    if weights == "LoRA":
        model = PeftModel.from_pretrained(small_model(), export)
    else:
        model = AutoModelForCausalLM.from_pretrained(export)
    found = dict(model.named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


UPDATES, KILLS = 24, 3


@pytest.mark.parametrize("engine", ["FSDP2, sharded state", "ZeRO-3"])
def test_a_run_that_is_killed_at_random_is_the_unbroken_one(tmp_path: Path, engine: str) -> None:
    settings = json.dumps(["StarPO-S", "LoRA", engine, UPDATES])
    whole = unbroken(tmp_path / "unbroken", settings, timeout=1200)
    broken = killed(tmp_path / "killed", settings, UPDATES, KILLS, timeout=1200)
    assert all(torch.equal(broken[name], value) for name, value in whole.items())
