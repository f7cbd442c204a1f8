"""The pages of the experiments: every script and result has one, with the same sections, and the index names it."""

import inspect
import json
import re
from pathlib import Path

import everything
import pytest
import tables

from ragen_envs.bandit import Bandit
from tests.support.project import ROOT

RESULTS = sorted(path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json"))
PAGES = sorted(path for path in (ROOT / "docs" / "experiments").glob("*.md") if path.stem != "index")
# Its page has more to say than what came out.
ELSEWHERE = {"warning_signs", "several_gpus"}


def test_every_result_has_a_page_and_every_page_a_result() -> None:
    assert [page.stem for page in PAGES] == sorted({*RESULTS, *tables.UNANSWERED} - ELSEWHERE)


def test_every_script_has_a_result_or_is_known_to_have_none_yet() -> None:
    assert {script.stem for script in everything.benchmarks()} - set(RESULTS) == tables.UNANSWERED
    assert not tables.UNANSWERED & set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_names_the_command_that_made_it(name: str) -> None:
    """Regression: two results named `python -m ragen_trl` with the options of their scripts."""
    content = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    made = [content] if "command" in content else [part for part in content.values() if part]  # a part a machine
    others = {
        "baselines": ["python -m ragen_envs baselines"],
        "gpu": ["benchmarks/gpu.sh run", "RAGEN_TEST_GPU=cuda python -m pytest tests/gpu"],  # its part `checks` alone
    }
    asked = others.get(name, [f"python benchmarks/{name}.py"])
    assert made and all(part["command"].startswith(tuple(asked)) for part in made)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_asks_says_how_shows_and_reads(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Question", "Setup", "Result", "Reading"]
    shown = {mark[3] for mark in tables.MARKED.finditer(text)}
    assert shown == (set() if page.stem in tables.UNANSWERED else {page.stem})
    asked = "-m ragen_envs baselines" if page.stem == "baselines" else f"benchmarks/{page.stem}.py"
    assert f"`python {asked}" in text.replace("\n", " ")


def test_the_index_links_every_page_with_an_answer_and_its_script() -> None:
    index = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.+?\]\(\.\./docs/([\w/]+)\.md[#\w-]*\) \| (.+?) \| `(.+?)` \|$", index, re.MULTILINE)
    linked = {page.removeprefix("experiments/"): (answer, script) for page, answer, script in rows}
    assert set(linked) == {*RESULTS, *tables.UNANSWERED}
    unanswered = {name for name, (answer, _) in linked.items() if not re.search(r"\d", answer)}
    assert unanswered == tables.UNANSWERED == {name for name, (answer, _) in linked.items() if answer == "Not run yet"}
    scripts = {name: script for name, (_, script) in linked.items() if name != "baselines"}
    assert scripts == {name: f"{name}.py" for name in scripts}


def test_a_page_with_a_mark_is_found_in_any_folder_of_the_docs(tmp_path: Path) -> None:
    marked = "<!-- table: benchmarks/results/x.json -->\n<!-- end of table -->\n"
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    for name, text in (("README.md", marked), ("docs/a.md", "no mark"), ("docs/deep/b.md", f"# B\n\n{marked}")):
        (tmp_path / name).write_text(text)
    assert [page.relative_to(tmp_path) for page in tables.marked_pages(tmp_path)] == [
        Path("README.md"),
        Path("docs/deep/b.md"),
    ]


def test_a_page_without_its_result_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: "No result yet." was taken for the table of a result that somebody had forgotten to commit."""
    page = tmp_path / "docs" / "x.md"
    page.parent.mkdir()
    page.write_text("<!-- table: benchmarks/results/x.json -->\nNo result yet.\n<!-- end of table -->\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["tables.py", "--check"])
    assert tables.main() == 1
    assert "benchmarks/results/x.json; commit them" in capsys.readouterr().err
    monkeypatch.setattr(tables, "UNANSWERED", frozenset({"x"}))
    assert tables.main() == 0


def test_tables_say_what_the_results_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tables.py", "--check"])
    assert tables.main() == 0, capsys.readouterr().err


def test_the_bandit_of_the_pages_pays_what_the_environment_pays() -> None:
    """The page had the paper's 0.15 for the safe arm; what was trained on is RAGEN's code, 0.1."""
    text = (ROOT / "docs" / "experiments" / "learning_curves.md").read_text(encoding="utf-8")
    said = re.search(r"one always pays ([\d.]+), the other pays ([\d.]+) a quarter", " ".join(text.split()))
    pays = inspect.signature(Bandit.__init__).parameters
    assert said is not None
    assert [float(number) for number in said.groups()] == [pays[f"{arm}_reward"].default for arm in ("low", "high")]
    assert pays["high_probability"].default == 0.25
