"""Two processes, each with a model or a part of it: the steps of one process, checkpoints, and vLLM beside them."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from ragen_trl.training.reference import Reference
from tests.support.ragen_trl.astar_runs import cached
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.sharded import CASES, DIVIDED, ENGINES, WEIGHTS, deviation, trained
from tests.support.ragen_trl.trainers import small_model

pytestmark = pytest.mark.timeout(2400)  # all cells are in the time of the first test

Cell = tuple[str, ...]
REPEATED = [("updates", name, "all", "DDP") for name in CASES]
UPDATES = [("updates", name, weights, engine) for engine in ENGINES for name in DIVIDED for weights in WEIGHTS]
UPDATES += [("updates", name, "all", "FSDP2, loaded once") for name in ("KL", "bi_level_gae", "A*-PO")]
SAVED = [
    ("resumed", name, weights, engine)
    for engine in (*ENGINES, "FSDP2, sharded state")
    for name in ("bi_level_gae", "A*-PO")
    for weights in WEIGHTS
]
SERVED = [("served", "turns", weights, "FSDP2") for weights in WEIGHTS]
SERVED_REPEATED = [("served", name, "all", "DDP") for name in ("turns", "A*-PO")]
METRICS = (
    *("success", "return", "reward", "turns", "grad_norm", "entropy", "filter/kept_groups", "filter/in_group_std"),
    *("filter/trajectories_sampled", "FrozenLake-v0/success", "FrozenLake-v0/turns"),
    *("critic/value_loss", "critic/clip_fraction", "critic/grad_norm", "critic/explained_variance"),
    *("critic/value_mean", "critic/return_mean", "astar/value", "astar/advantage", "astar/advantage_std"),
    *("astar/log_ratio", "astar/residual", "astar/residual_squared", "astar/reference_episodes"),
)
MODULE = "tests.support.ragen_trl.sharded"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Where two processes have left the results of all cells of DDP, or of the others, and three those that go on."""

    @cache
    def launched(repeated: bool) -> Path:
        path = tmp_path_factory.mktemp("cells")
        cells = REPEATED + SERVED_REPEATED if repeated else UPDATES + SAVED + SERVED
        (path / "cells.json").write_text(json.dumps(cells), encoding="utf-8")
        on_two_processes(MODULE, path, timeout=400 if repeated else 2000)
        if not repeated:
            (path / "cells.json").write_text(json.dumps(SAVED), encoding="utf-8")
            on_two_processes(MODULE, path, timeout=1500, processes=3)
        return path

    return launched


def results(folder: Any, cell: Cell, processes: int = 2) -> list[dict[str, Any]]:
    """What all processes have left of a cell."""
    paths = [folder(cell[3] == "DDP") / f"{' '.join(cell)} {processes} {rank}.pt" for rank in range(processes)]
    return [torch.load(path, weights_only=False) for path in paths]


def whole(folder: Any, cell: Cell, processes: int = 2) -> list[dict[str, Any]]:
    """The same of a cell that did not fail."""
    ranks = results(folder, cell, processes)
    assert not any("error" in made for made in ranks), [made.get("error") for made in ranks]
    return ranks


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, Any]]:
    """What one process makes of a case."""
    return cache(lambda name, weights: trained(tmp_path_factory.mktemp("single"), name, weights, None))


def same(single: list[dict[str, Any]], found: list[dict[str, Any]], names: Any) -> None:
    """Rows of a log agree, where they have one of these names."""
    assert len(single) == len(found) > 0
    for expected, row in zip(single, found, strict=True):
        values = {name: expected[name] for name in names if name in expected}
        assert {name: row[name] for name in values} == pytest.approx(values, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("cell", REPEATED + UPDATES, ids=" ".join)
def test_three_updates_are_those_of_one_process(folder: Any, single: Any, cell: Cell) -> None:
    _, name, weights, _ = cell
    alone, (first, second) = single(name, weights), whole(folder, cell)
    assert deviation(first, alone) < 2e-6 and deviation(first, second) == 0
    assert len(alone["metrics"]) == 3
    # Logged are means of micro-batches, into which the filter of this case leaves unequal numbers.
    left_out = ("astar/residual", "astar/residual_squared") if name == "A*-PO in groups" else ()
    same(alone["metrics"], first["metrics"], set(METRICS) - {*left_out})
    for row, found in zip(alone["metrics"], first["metrics"], strict=True):
        assert name != "turns" or "collapse/mi_seconds" in row.keys() & found.keys()
    assert not alone["critic"] or alone["metrics"][-1]["critic/explained_variance"]
    if weights == "all" and name != "no group":
        start = small_model().state_dict()
        assert any(bool((value != start[key]).any()) for key, value in alone["parameters"].items())
    if name == "refill":
        assert max(row["filter/trajectories_sampled"] for row in alone["metrics"]) > 12
    assert first["values"] == alone["values"]
    if name == "evaluation":  # every row counts once
        timed = ("runtime", "per_second", "time", "seconds")
        names = [key for key in alone["evaluations"][0] if key.startswith("eval_") and not key.endswith(timed)]
        assert len(alone["evaluations"]) == 4 and len(names) > 20
        same(alone["evaluations"], first["evaluations"], names)
        assert 0 < alone["evaluations"][0]["eval_success"] < 1


@pytest.mark.parametrize(
    "cell", [cell for cell in REPEATED if "filter" in cell[1] or cell[1] == "refill"], ids=" ".join
)
def test_kept_trajectories_are_shared_evenly_and_fill_micro_batches(folder: Any, cell: Cell) -> None:
    """Regression: they stayed where they had been played, in as many micro-batches as before."""
    first, second = (made["trained"] for made in whole(folder, cell))
    assert len(first) == len(second) == CASES[cell[1]]["rows"] // 4
    if "parts" in cell[1]:  # shared evenly are trajectories' rows, of which one may have three
        assert abs(sum(first) - sum(second)) <= 3
    else:
        assert abs(sum(first) - sum(second)) <= 1
        used = -(-max(sum(first), sum(second)) // 2)  # micro-batches of two rows
        assert [bool(count) for count in first] == [False] * (len(first) - used) + [True] * used


def test_a_process_that_is_done_early_does_not_keep_the_other_from_playing_on(folder: Any) -> None:
    first, second = whole(folder, ("updates", "turns", "all", "DDP"))
    assert max(first["turns"]) != max(second["turns"])


def test_two_processes_know_the_same_values_and_write_them_once(folder: Any) -> None:
    cell = ("updates", "A*-PO in groups", "all", "DDP")
    one, other = (made["values"][0] for made in whole(folder, cell))
    assert one == other
    kept = cached(folder(True) / " ".join(cell))
    assert sum(map(len, kept.values())) == one.episodes == one.played
    assert kept.keys() == one.starts.keys()


def test_fingerprints_are_the_same_in_another_process(folder: Any) -> None:
    """Hashes of strings have another seed there."""
    assert (folder(True) / "fingerprint 1.txt").read_text() == Reference(small_model()).fingerprint()


@pytest.mark.parametrize("cell", SAVED, ids=" ".join)
def test_a_resumed_run_is_the_unbroken_one_bit_by_bit_and_writes_a_plain_folder(folder: Any, cell: Cell) -> None:
    """Regression: with sharded state dicts no model was written, and nothing said."""
    ranks = whole(folder, cell)
    assert [deviation(made["resumed"], made["unbroken"]) for made in ranks] == [0, 0]
    export = folder(False) / " ".join(cell) / "export"
    if cell[2] == "LoRA":
        model = PeftModel.from_pretrained(small_model(), export)
    else:
        model = AutoModelForCausalLM.from_pretrained(export)
    found, expected = dict(model.named_parameters()), ranks[0]["unbroken"]["parameters"]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize("cell", SAVED, ids=" ".join)
def test_two_processes_checkpoint_goes_on_with_three_only_under_fsdp(folder: Any, cell: Cell) -> None:
    """Regression: under DeepSpeed one process of three failed, and the others waited for it."""
    if "ZeRO" in cell[3]:
        first, *others = results(folder, cell, 3)
        assert "was saved with DEEPSPEED on 2 processes, and this launch has DEEPSPEED on 3" in first["error"]
        assert all("SystemExit: 2" in made["error"] for made in others)
        return
    ranks = whole(folder, cell, 3)
    assert 0 <= deviation(ranks[0]["resumed"], whole(folder, cell)[0]["unbroken"]) < 2e-6
    assert deviation(ranks[2]["resumed"], ranks[0]["resumed"]) == 0


@pytest.mark.parametrize("cell", SERVED_REPEATED + SERVED, ids=" ".join)
def test_a_server_samples_with_the_weights_of_the_trainer(folder: Any, cell: Cell) -> None:
    """Training ends although one process plays longer. Weights are sent one after the other; a rollout gathers none.

    Everybody trains on their own replies: those to another context would have other log-probabilities.
    """
    first, second = whole(folder, cell)
    assert first["gathered"] == 0 and deviation(first, second) == 0
    assert first["evaluated"] == second["evaluated"]
    for made in (first, second):
        assert len(made["metrics"]) == 2
        for row in made["metrics"]:
            assert row["sampling/ratio_deviation_max"] < 1e-4 and row["grad_norm"] > 0
    if cell[1] == "turns":
        assert max(first["turns"]) != max(second["turns"])
    else:
        assert first["values"] == second["values"]
        assert len(first["values"][0].starts) == 5  # in the first round one process plays three episodes, the other two
