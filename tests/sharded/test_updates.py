"""Three updates with a divided model are those of one process, for every algorithm, engine, and all weights or LoRA."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance
from tests.support.project import ROOT
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.sharded import CASES, ENGINES, WEIGHTS, deviation, trained

pytestmark = pytest.mark.timeout(1800)  # all cells are in the time of the first test

CELLS = [(name, weights, engine) for engine in ENGINES for name in CASES for weights in WEIGHTS]
CELLS += [(name, "all", "FSDP2, loaded once") for name in ("KL", "bi_level_gae", "A*-PO")]
METRICS = ("reward", "turns", "grad_norm", "entropy", "filter/kept_groups", "critic/explained_variance", "astar/value")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left the results of all cells; one launch, since it costs more than a cell."""
    path = tmp_path_factory.mktemp("cells")
    (path / "cells.json").write_text(json.dumps(CELLS), encoding="utf-8")
    on_two_processes("tests.support.ragen_trl.sharded_ranks", path, timeout=1500)
    return path


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, Any]]:
    """What one process makes of a case."""
    return cache(lambda name, weights: trained(tmp_path_factory.mktemp("single"), name, weights, None))


@pytest.mark.parametrize(("name", "weights", "engine"), CELLS)
def test_three_updates_are_those_of_one_process(
    folder: Path, single: Callable[[str, str], dict[str, Any]], name: str, weights: str, engine: str
) -> None:
    ranks = [torch.load(folder / f"{name} {weights} {engine} {rank}.pt", weights_only=False) for rank in (0, 1)]
    assert not any("error" in made for made in ranks), ranks[0].get("error") or ranks[1].get("error")
    alone, (first, second) = single(name, weights), ranks
    assert deviation(first, alone) < 2e-6 and deviation(first, second) == 0
    assert len(alone["metrics"]) == 3
    for expected, found in zip(alone["metrics"], first["metrics"], strict=True):
        names = [key for key in METRICS if key in expected]
        same = {key: expected[key] for key in names}
        assert {key: found[key] for key in names} == pytest.approx(same, rel=1e-4, abs=1e-6)
    if alone["critic"]:
        assert all(row["critic/explained_variance"] for row in alone["metrics"])
    if name == "turns":
        assert all("collapse/mi_seconds" in row for row in (*alone["metrics"], *first["metrics"]))
    if alone["values"]:
        assert first["values"] == alone["values"]


def test_the_table_is_written(folder: Path, single: Callable[[str, str], dict[str, Any]], deepspeed: str) -> None:
    """``runs/sharded.json``, which ``benchmarks/results/sharded.json`` is a copy of."""
    cells = []
    for name, weights, engine in CELLS:
        made = torch.load(folder / f"{name} {weights} {engine} 0.pt", weights_only=False)
        apart = None if "error" in made else deviation(made, single(name, weights))
        cells.append({"case": name, "weights": weights, "engine": engine, "deviation": apart})
    told = {**provenance(), "command": "make test-sharded", "deepspeed": deepspeed}
    content = {**told, "updates": 3, "processes": 2, "cells": cells}
    write_atomically(ROOT / "runs" / "sharded.json", json.dumps(content, indent=1))
    assert all(cell["deviation"] is not None for cell in cells)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "no group"])
def test_what_is_compared_has_learnt(
    single: Callable[[str, str], dict[str, Any]], tmp_path: Path, name: str, weights: str
) -> None:
    """A thousand times further than two launches may be apart."""
    before = trained(tmp_path, name, weights, None, learning_rate=0.0)
    assert deviation({**before, "critic": single(name, weights)["critic"]}, single(name, weights)) > 2e-3
