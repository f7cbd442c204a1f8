"""Where a number comes from."""

import subprocess
from pathlib import Path

import pytest

from ragen_trl.system import provenance as module
from ragen_trl.system.provenance import provenance


@pytest.mark.parametrize(("launched", "processes"), [(None, 1), ("4", 4)])
def test_a_launch_of_several_processes_is_told_from_a_single_one(
    launched: str | None, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if launched is not None:
        monkeypatch.setenv("WORLD_SIZE", launched)
    monkeypatch.setattr("sys.argv", ["ragen_trl", "train", "--env", "my env"])
    found = provenance()
    assert found["machine"]["processes"] == processes
    listed = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    assert found["machine"]["processor"] in listed or "model name" not in listed
    assert found["command"] == "python -m ragen_trl train --env 'my env'"


def test_results_and_pages_that_are_being_written_are_no_changes_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after a question's first result every other one was said to be of changed code."""
    here = tmp_path / "package" / "provenance.py"
    for path in (here, tmp_path / "benchmarks" / "results" / "a.json", tmp_path / "docs" / "a.md"):
        path.parent.mkdir(parents=True)
        path.write_text("")
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(module, "__file__", str(here))
    monkeypatch.delenv("RAGEN_COMMIT", raising=False)
    commit = provenance()["commit"]
    for path in ("benchmarks/results/a.json", "benchmarks/results/b.json", "docs/a.md"):
        (tmp_path / path).write_text("new")
        assert provenance()["commit"] == commit
    (tmp_path / "package" / "other.py").write_text("new")
    assert provenance()["commit"] == f"{commit}+changes"


def test_a_copy_without_history_says_what_it_is_a_copy_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    monkeypatch.delenv("RAGEN_COMMIT", raising=False)
    assert provenance()["commit"] is None
    monkeypatch.setenv("RAGEN_COMMIT", "0123abc")
    assert provenance()["commit"] == "0123abc"


def test_a_copy_in_another_checkout_says_what_it_is_a_copy_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a copy over an older checkout named that one's commit, with changes."""
    monkeypatch.setenv("RAGEN_COMMIT", "0123abc")
    assert provenance()["commit"] == "0123abc"


def test_an_installed_copy_in_another_projects_checkout_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAGEN_COMMIT", raising=False)
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    (tmp_path / "provenance.py").write_text("")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    assert provenance()["commit"] is None
