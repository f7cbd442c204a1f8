"""What benchmarks/train_step.py measures, how it puts that together, and the table."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import pytest
import train_step
from measuring import updates
from pages.updates import update_tables

from ragen_trl.rollout.interfaces import Start
from tests.support.prepared import PREPARED


def test_made_up_episodes_have_the_lengths_that_were_asked_for_and_depend_on_their_seed() -> None:
    made_up, workload = updates.made_up, train_step.QWEN
    played = [made_up(Start(1, 2, seed), workload, 500) for seed in range(50)]
    assert all(len(one.turns) == 5 for one in played)
    assert made_up(Start(1, 2, 7), workload, 500) == played[7]
    turns = [turn for one in played for turn in one.turns[1:]]
    tokens = sorted(len(turn.prompt_ids) + len(turn.reply_ids) for turn in turns)
    assert 85 < tokens[len(tokens) // 2] < 115
    assert {one.episode_return for one in played} > {0.0, 1.0}
    short = [made_up(Start(1, 2, seed), replace(workload, goes_on=0.0), 500) for seed in range(5)]
    assert all(len(one.turns) == 1 for one in short)


LORA: dict[str, Any] = {"rank": 4, "form": "A*-PO", "checkpointing": True, "batch_size": 1}


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    """All weights, and LORA, each in its own process as in the benchmark: memory held before would hide the peak."""
    workload = updates.Workload(**{**asdict(train_step.SMALL), **train_step.SMOKE, "updates": 2})
    settings = [updates.Setting(), updates.Setting(**LORA)]
    with ProcessPoolExecutor(1, PREPARED, max_tasks_per_child=1) as pool:
        return list(pool.map(updates.measure, settings, [workload] * 2))


def test_a_measurement_times_updates_and_counts_what_is_trained(measured: list[dict[str, Any]]) -> None:
    for found in measured:
        assert len(found["seconds"]) == 2 and all(0 < value < 100 for value in found["seconds"])
        assert found["peak_mib"] > 0
    whole, lora = measured
    assert whole["trained_parameters"] == whole["parameters"]
    assert all(0 < value < 0.5 for value in whole["padding"])
    assert 0 < lora["trained_parameters"] < lora["parameters"] / 2
    assert lora["padding"] == [0, 0]


def test_medians_are_over_all_updates_of_all_processes() -> None:
    common = {"padding": [0.1], "trained_parameters": 3, "parameters": 6}
    results = [{"seconds": [1.0, 4.0], "peak_mib": 10.0, **common}, {"seconds": [3.0], "peak_mib": 30.0, **common}]
    row = train_step.row_of(train_step.Setting(rank=16), results)
    assert [row[name] for name in ("rank", "seconds", "fastest", "slowest", "updates")] == [16, 3.0, 1.0, 4.0, 3]
    assert (row["peak_mib"], row["padding"]) == (20.0, pytest.approx(0.1))


def test_the_table_says_what_lora_saves_and_what_was_not_run() -> None:
    found = {"seconds": [1.0], "padding": [0.1], "trained_parameters": 3, "parameters": 6_000_000}
    rows = [
        train_step.row_of(train_step.Setting(rank=rank, checkpointing=checkpointing), [{**found, "peak_mib": peak}])
        for rank, checkpointing, peak in ((None, False, 200.0), (16, False, 80.0), (64, True, 50.0))
    ]
    cpu = {"workload": asdict(train_step.SMALL), "rows": rows, "commit": "0123456789ab"}
    text = update_tables({"cpu": cpu, "gpu": None})
    assert "| all weights | group | no | 4 | by length | 100% | 1.00 (1.00 to 1.00) | 10% | 200 |  |" in text
    assert "| LoRA, r = 16 | group | no | 4 | by length | 100% | 1.00 (1.00 to 1.00) | 10% | 80 | 40% |" in text
    assert "| LoRA, r = 64 | group | yes | 4 | by length | 100% | 1.00 (1.00 to 1.00) | 10% | 50 |  |" in text
    assert text.endswith("**On a GPU**: not run.\n")
