"""A model that FSDP2 or DeepSpeed divides over two processes: its updates, its checkpoints, and vLLM beside it."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.sharded import CASES, ENGINES, WEIGHTS, deviation, trained
from tests.support.ragen_trl.trainers import small_model

pytestmark = pytest.mark.timeout(2400)  # all cells are in the time of the first test

UPDATES = [("updates", name, weights, engine) for engine in ENGINES for name in CASES for weights in WEIGHTS]
UPDATES += [("updates", name, "all", "FSDP2, loaded once") for name in ("KL", "bi_level_gae", "A*-PO")]
SAVED = [
    ("resumed", name, weights, engine)
    for engine in (*ENGINES, "FSDP2, sharded state")
    for name in ("bi_level_gae", "A*-PO")
    for weights in WEIGHTS
]
SERVED = [("served", "turns", weights, "FSDP2") for weights in ("all", "LoRA")]
METRICS = ("reward", "turns", "grad_norm", "entropy", "filter/kept_groups", "critic/explained_variance", "astar/value")
MODULE = "tests.support.ragen_trl.sharded"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left the results of all cells, and three those that go on."""
    path = tmp_path_factory.mktemp("cells")
    (path / "cells.json").write_text(json.dumps(UPDATES + SAVED + SERVED), encoding="utf-8")
    on_two_processes(MODULE, path, timeout=2000)
    (path / "cells.json").write_text(json.dumps(SAVED), encoding="utf-8")
    on_two_processes(MODULE, path, timeout=1500, processes=3)
    return path


def results(folder: Path, cell: tuple[str, ...], processes: int = 2) -> list[dict[str, Any]]:
    """What all processes have left of a cell."""
    paths = [folder / f"{' '.join(cell)} {processes} {rank}.pt" for rank in range(processes)]
    return [torch.load(path, weights_only=False) for path in paths]


def whole(folder: Path, cell: tuple[str, ...], processes: int = 2) -> list[dict[str, Any]]:
    """The same of a cell that did not fail."""
    ranks = results(folder, cell, processes)
    assert not any("error" in made for made in ranks), [made.get("error") for made in ranks]
    return ranks


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, Any]]:
    """What one process makes of a case."""
    return cache(lambda name, weights: trained(tmp_path_factory.mktemp("single"), name, weights, None))


@pytest.mark.parametrize("cell", UPDATES, ids=" ".join)
def test_three_updates_are_those_of_one_process(folder: Path, single: Any, cell: tuple[str, ...]) -> None:
    _, name, weights, _ = cell
    alone, (first, second) = single(name, weights), whole(folder, cell)
    assert deviation(first, alone) < 2e-6 and deviation(first, second) == 0
    assert len(alone["metrics"]) == 3
    for expected, found in zip(alone["metrics"], first["metrics"], strict=True):
        same = {key: expected[key] for key in METRICS if key in expected}
        assert {key: found[key] for key in same} == pytest.approx(same, rel=1e-4, abs=1e-6)
        assert not alone["critic"] or expected["critic/explained_variance"]
        assert name != "turns" or "collapse/mi_seconds" in expected.keys() & found.keys()
    if weights == "all" and name != "no group":
        start = small_model().state_dict()
        assert any(bool((value != start[key]).any()) for key, value in alone["parameters"].items())
    if alone["values"]:
        assert first["values"] == alone["values"]


@pytest.mark.parametrize("cell", SAVED, ids=" ".join)
def test_a_resumed_run_is_the_unbroken_one_bit_by_bit_and_writes_a_plain_folder(
    folder: Path, cell: tuple[str, ...]
) -> None:
    """Regression: with sharded state dicts no model was written, and nothing said."""
    ranks = whole(folder, cell)
    assert [deviation(made["resumed"], made["unbroken"]) for made in ranks] == [0, 0]
    export = folder / " ".join(cell) / "export"
    if cell[2] == "LoRA":
        model = PeftModel.from_pretrained(small_model(), export)
    else:
        model = AutoModelForCausalLM.from_pretrained(export)
    found, expected = dict(model.named_parameters()), ranks[0]["unbroken"]["parameters"]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize("cell", SAVED, ids=" ".join)
def test_two_processes_checkpoint_goes_on_with_three_only_under_fsdp(folder: Path, cell: tuple[str, ...]) -> None:
    """Regression: under DeepSpeed one process of three failed, and the others waited for it."""
    if "ZeRO" in cell[3]:
        for made in results(folder, cell, 3):
            assert "was saved by DeepSpeed on 2 processes, and this launch has 3" in made["error"]
        return
    ranks = whole(folder, cell, 3)
    assert 0 <= deviation(ranks[0]["resumed"], whole(folder, cell)[0]["unbroken"]) < 2e-6
    assert deviation(ranks[2]["resumed"], ranks[0]["resumed"]) == 0


@pytest.mark.parametrize("cell", SERVED, ids=" ".join)
def test_a_server_samples_with_the_weights_of_the_trainer(folder: Path, cell: tuple[str, ...]) -> None:
    """Weights are sent, one tensor after the other; a rollout gathers nothing."""
    first, second = whole(folder, cell)
    assert first["gathered"] == 0 and max(first["turns"]) != max(second["turns"])
    assert len(first["metrics"]) == 2
    for row in first["metrics"]:
        assert row["sampling/ratio_deviation_max"] < 1e-4 and row["grad_norm"] > 0
