"""The goals of a large catalogue come from a file and are those that are made in memory."""

import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from webshop_server.catalog import Catalog, open_catalog
from webshop_server.goals import tables
from webshop_server.goals.goals import Goals, make_goals
from webshop_server.goals.sources import GoalError
from webshop_server.goals.splits import SPLITS


def opened(folder: Path, **options: Any) -> Catalog:
    """A catalogue that counts as a large one."""
    return open_catalog("synthetic:400", cache_dir=folder, max_in_memory=0, **options)


def everything(goals: Goals) -> tuple[object, ...]:
    """All goals, all splits, and draws from each."""
    drawn = [[goals.sample(random.Random(seed), name) for seed in range(30)] for name in SPLITS]
    return list(goals), [list(goals.split(name)) for name in SPLITS], goals.splits(), drawn


def goal_file(folder: Path) -> Path:
    (path,) = folder.glob("goals-*")
    return path


def test_goals_from_a_file_are_those_made_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = everything(make_goals(open_catalog("synthetic:400"), human=False))
    assert everything(make_goals(opened(tmp_path), human=False)) == made
    monkeypatch.setattr(tables, "read_sources", lambda *_: pytest.fail("the products were read again"))
    again = make_goals(opened(tmp_path), human=False)
    assert everything(again) == made
    assert type(again[3].weight) is float and type(again.split("test_by_product")[0]) is int
    assert goal_file(tmp_path).name == f"goals-{opened(tmp_path).hash[:16]}-generated.arrays"


def test_a_small_catalogue_leaves_no_file(tmp_path: Path) -> None:
    make_goals(open_catalog("synthetic:400", cache_dir=tmp_path), human=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "version", "seed", "shop"])
def test_what_is_not_of_these_goals_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    catalog = opened(tmp_path)
    wanted = everything(make_goals(catalog, human=False))
    path = goal_file(tmp_path)
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 64)
    elif damage == "version":
        monkeypatch.setattr(tables, "_VERSION", 0)
    elif damage == "seed":
        make_goals(catalog, human=False, seed=1)
    else:
        other = open_catalog("synthetic:400", cache_dir=tmp_path / "other", max_in_memory=0, seed=1)
        make_goals(other, human=False)
        os.replace(goal_file(tmp_path / "other"), path)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert everything(make_goals(catalog, human=False)) == wanted
    assert caplog.text.count("making it again") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is in use cannot be deleted there")
def test_a_process_that_is_killed_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    code = (
        "import os, sys; from webshop_server.catalog import open_catalog, array_file\n"
        "from webshop_server.goals.goals import make_goals\n"
        "catalog = open_catalog('synthetic:400', cache_dir=sys.argv[1], max_in_memory=0)\n"
        "array_file.os.fsync = lambda *_: os._exit(9)\n"  # when all is written and nothing has its name
        "make_goals(catalog, human=False)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60).returncode == 9
    (left,) = tmp_path.glob("goals-*")
    assert left.suffix == ".partial"
    wanted = everything(make_goals(open_catalog("synthetic:400"), human=False))
    assert everything(make_goals(opened(tmp_path), human=False)) == wanted


def test_where_nothing_can_be_written_they_are_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError("no space left")

    catalog = opened(tmp_path)
    monkeypatch.setattr(tables, "new_file", full)
    goals = make_goals(catalog, human=False)
    assert everything(goals) == everything(make_goals(open_catalog("synthetic:400"), human=False))
    assert "no space left" in caplog.text and list(tmp_path.glob("goals-*")) == []


def test_a_folder_in_their_place_is_no_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog = opened(tmp_path)
    wanted = everything(make_goals(catalog, human=False))
    (path,) = tmp_path.glob("goals-*")
    path.unlink()
    path.mkdir()
    assert everything(make_goals(catalog, human=False)) == wanted
    assert "cannot be written" in caplog.text


def test_a_large_catalogue_without_human_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="no human requests"):
        make_goals(opened(tmp_path), human=True)
    assert list(tmp_path.glob("goals-*")) == []


def test_processes_that_find_nothing_build_each_file_once(tmp_path: Path) -> None:
    """Regression: each process built its own search index and goals, all but one for nothing."""
    code = (
        "import sys; from webshop_server.catalog import opening; from webshop_server.goals import tables\n"
        "from webshop_server.search import index; from webshop_server.server.app import open_shop\n"
        "opening.MAX_IN_MEMORY = 0; opening.open_catalog.__kwdefaults__['max_in_memory'] = 0\n"
        "def noted(function, name):\n"
        "    def outer(*arguments):\n"
        "        with open(sys.argv[2], 'a') as file: file.write(name + '\\n')\n"
        "        return function(*arguments)\n"
        "    return outer\n"
        "index.collect = noted(index.collect, 'index'); tables.make_tables = noted(tables.make_tables, 'goals')\n"
        "print(open_shop('synthetic:3000', cache_dir=sys.argv[1]).about())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache"), str(tmp_path / "notes")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate(timeout=120)[0] for process in running}
    assert len(said) == 1
    assert "'products': 3000" in said.pop()
    assert sorted((tmp_path / "notes").read_text().split()) == ["goals", "index"]
