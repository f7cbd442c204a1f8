"""The scripts that measure: tables reach pages, results are whole, and parity notices a difference."""

import json
from pathlib import Path
from typing import Any

import pytest
import record
import tables
import webshop_parity

from webshop_server.catalog import open_catalog
from webshop_server.search.index import SearchIndex


def test_a_result_has_its_origin_and_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "speed.json"
    record.write(path, "python benchmarks/speed.py", rates=[1.5], table=record.table(["a"], [[1]], "A note."))
    found = json.loads(path.read_text())
    assert found["command"] == "python benchmarks/speed.py" and found["rates"] == [1.5]
    assert {"commit", "versions", "machine", "created"} <= found.keys()
    with pytest.raises(TypeError):
        record.write(path, "python benchmarks/speed.py", rates=object())
    assert json.loads(path.read_text()) == found


def test_a_page_gets_the_table_of_its_result(tmp_path: Path) -> None:
    result = tmp_path / "benchmarks" / "results" / "x.json"
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"table": record.table(["id", "n"], [["a", 1], ["b", 2]], "Of two.")}))
    page = "Before.\n<!-- table: benchmarks/results/x.json -->\nold\n<!-- end of table -->\nAfter.\n"
    fresh = tables.with_tables(page, tmp_path)
    assert "| id | n |\n|---|---|\n| a | 1 |\n| b | 2 |\n\nOf two.\n<!-- end" in fresh and "old" not in fresh
    assert tables.with_tables(fresh, tmp_path) == fresh


def test_the_pages_have_the_tables_of_the_committed_results(root: Path) -> None:
    for page in [root / "README.md", *(root / "docs").rglob("*.md")]:
        if "_build" not in page.parts:
            text = page.read_text(encoding="utf-8")
            assert tables.with_tables(text, root) == text, f"{page}: run python benchmarks/tables.py"


def test_ratios_are_taken_within_rounds() -> None:
    assert record.median_ratio([2.0, 40.0, 9.0], [1.0, 10.0, 3.0]) == 3.0


def test_the_store_does_what_the_original_did(real_data: Path) -> None:
    """Tokens, rankings and scores, rewards, pages and goals; numbers of goals and of those that can be won."""
    counts = webshop_parity.compare_all(real_data)
    assert sum(of for _, of in counts.values()) > 15_000
    assert {name: count for name, count in counts.items() if count[0] != count[1]} == {}


def test_parity_notices_one_wrong_rank(real_data: Path, tmp_path: Path) -> None:
    catalog = open_catalog(real_data / webshop_parity.PRODUCTS, cache_dir=tmp_path)
    index = SearchIndex.open(catalog)
    right = webshop_parity.compare_rankings(real_data, index)
    assert all(same == of == 250 for same, of in right.values())

    class Swapped:
        """The second product of one query comes first."""

        def __init__(self) -> None:
            self.queries = 0

        def search(self, words: list[str]) -> list[str]:
            self.queries += 1
            found = list(index.search(words))
            return [found[1], found[0], *found[2:]] if self.queries == 7 else found

        def scores(self, query: str) -> Any:
            return index.scores(query)

    wrong: Any = Swapped()
    counts = webshop_parity.compare_rankings(real_data, wrong)
    assert [same for name, (same, _) in counts.items() if "in order" in name] == [249, 249]


def test_trajectories_of_a_run_follow_from_its_history() -> None:
    """Of 13 updates, four a rollout: four rollouts, of 32 trajectories as logged, one row with a refill."""
    config = {"steps_per_generation": 8, "gradient_accumulation_steps": 4, "num_iterations": 2}
    rows = [{"step": step, "filter/trajectories_sampled": count} for step, count in ((1, 32), (5, 64), (9, 32))]
    assert record.sampled(config, [*rows, {"step": 13, "filter/trajectories_sampled": 32}]) == 160
