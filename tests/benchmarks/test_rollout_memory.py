"""The committed measurements hold what the estimate promises, and the table says so."""

import json
from dataclasses import asdict
from pathlib import Path

import rollout_memory
from measuring.memory import Case
from pages.rollouts import memory_table

RESULT = Path(rollout_memory.__file__).parent / "results" / "rollout_memory.json"


def test_every_estimate_is_within_15_percent_of_what_a_process_held() -> None:
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    assert {row["phase"] for row in rows} == {"rollout", "update"} and len(rows) >= 10
    shares = [row["estimate_mib"] / row["peak_mib"] for row in rows]
    assert all(0.85 < share < 1.15 for share in shares), shares


def test_the_table_names_what_distinguishes_a_case() -> None:
    cases = [Case("rollout", 16, 1024, at_once=6, mixed=True), Case("update", 4, 512, rank=16, checkpointing=True)]
    rows = [{**asdict(case), "peak_mib": 200.0, "estimate_mib": 210.0} for case in cases]
    found = memory_table({"rows": rows, "command": "x", "commit": "0123456789ab", "versions": {"torch": "2.9"}})
    assert "| rollout | 16 trajectories, 6 at a time, bfloat16 mixed precision | 200 | 210 | 1.05 |" in found
    assert "| update | 4 trajectories a micro-batch, LoRA, r = 16, checkpointing | 200 | 210 | 1.05 |" in found
