"""The report: what it reads, what it says in words and numbers, and that its page is one safe, repeatable file."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.reporting.figures import PANELS
from ragen_trl.reporting.report import Run, RunNotFoundError, read_run, results_table, write_report
from ragen_trl.reporting.result_text import sentence
from tests.support.ragen_trl.reports import (
    SUMMARY,
    changed,
    elements,
    page,
    result,
    seeds,
    success_only,
    words,
    write_run,
)

TABLE = """\
policy           success [95 %]  return  format ok  turns    n
random        0.23 [0.20, 0.27]    0.18       1.00    7.1  512
(warm start)  0.31 [0.27, 0.35]   -0.26       0.93    4.1  512
trained       0.80 [0.76, 0.83]    0.75       1.00    2.7  512
oracle        1.00 [0.99, 1.00]    0.95       1.00    5.3  512"""


def test_the_table_is_exact() -> None:
    assert results_table(SUMMARY) == TABLE


def test_without_a_warm_start_the_row_is_called_before() -> None:
    lines = results_table(changed(warm_started=False)).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["policy", "random", "(before)", "trained", "oracle"]


def test_the_table_names_a_missing_result() -> None:
    with pytest.raises(ValueError, match=r"summary: no result for 'oracle'"):
        results_table(changed(results={"oracle": None}))


START = "Success on 512 held-out start states: 0.31 [0.27, 0.35] after the warm start, "


@pytest.mark.parametrize(
    ("trained", "verdict"),
    [
        ((0.8, 0.763, 0.832), "0.80 [0.76, 0.83] {} The interval after training lies above the one before."),
        ((0.35, 0.31, 0.392), "0.35 [0.31, 0.39] {} The intervals overlap: no improvement shown."),
        ((0.37, 0.352, 0.392), "0.37 [0.35, 0.39] {} The intervals overlap: no improvement shown."),  # they touch
        (
            (0.2, 0.168, 0.237),
            "0.20 [0.17, 0.24] {} Success fell: the interval after training lies below the one before. "
            "The trained policy is not shown to be better than the random one.",
        ),
    ],
)
def test_the_sentence_says_what_the_intervals_allow(trained: tuple[float, float, float], verdict: str) -> None:
    run = Run(Path("run"), changed(results={"trained": result(*trained, 0.5)}), [])
    assert sentence(run, "") == START + verdict.format("after training; random 0.23, oracle 1.00.")


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ({"before": 0.04, "random": 0.12}, "Success rose: the difference is +0.04 [+0.01, +0.07]"),
        ({"before": 0.02, "random": 0.10}, "No improvement shown: the difference is +0.02 [-0.01, +0.05]"),
        ({"before": -0.04, "random": 0.02}, "Success fell: the difference is -0.04 [-0.07, -0.01]"),
    ],
)
def test_a_difference_by_start_state_decides_where_it_is_known(differences: dict[str, float], verdict: str) -> None:
    """The rates alone overlap, 0.31 [0.27, 0.35] before and 0.35 [0.31, 0.39] after training."""
    pairs = {
        name: {"value": value, "low": value - 0.03, "high": value + 0.03, "starts": 512}
        for name, value in differences.items()
    }
    trained = {**result(0.35, 0.31, 0.392, 0.5), "differences": pairs}
    text = sentence(Run(Path("run"), changed(results={"trained": trained}), []), "")
    assert f"; random 0.23, oracle 1.00. {verdict}, paired by start state." in text
    assert text.endswith("better than the random one.") == (differences["random"] < 0.03)


def test_several_seeds_give_a_range_and_no_pooled_interval(tmp_path: Path) -> None:
    trained = [(0.8, 0.76, 0.83), (0.6, 0.56, 0.64), (0.34, 0.3, 0.38)]
    html = page(seeds(tmp_path, trained, history=success_only(20)), tmp_path)
    text = words(html)
    assert (
        "Success over 3 seeds (1, 2, 3), 512 held-out start states each: 0.31 after the warm start, 0.58 (0.34–0.80) "
        "after training, mean and range over runs; random 0.23, oracle 1.00. Training is shown to raise success in "
        "2 of 3 runs."
    ) in text
    assert "Mean (min–max) over 3 seeds (1, 2, 3)" in text
    assert "trained 0.58 (0.34–0.80) 0.70 1.00 0.0 3 × 512" in text
    assert [text.count(f"seed {seed} policy success") for seed in (1, 2, 3)] == [1, 1, 1]
    assert "mean, training" in text


def test_equal_seeds_are_not_counted_as_independent(tmp_path: Path) -> None:
    folders = seeds(tmp_path, [(0.8, 0.76, 0.83)] * 3, numbers=[1, 1, 2], history=[])
    text = words(page(folders, tmp_path))
    assert "Success over 3 runs of only 2 different seeds" in text
    assert "run-0 policy" in text


def test_runs_that_differ_are_not_pooled(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", history=success_only(20))
    other = changed(algo="a-star-po", config={"learning_rate": 0.01})
    second = write_run(tmp_path / "b", other, success_only(3))
    text = words(page([first, second], tmp_path))
    assert text.startswith(" starpo-s, a-star-po on ragen/FrozenLake-v0 a: success on 512 held-out")
    assert "The runs are not pooled: they differ in algo, steps, learning_rate." in text
    assert "min–max" not in text
    assert "mean, training" not in text


def test_the_page_is_standalone_and_always_the_same_bytes(tmp_path: Path) -> None:
    runs = seeds(tmp_path / "runs", [(0.8, 0.76, 0.83)] * 2)
    html = page(runs, tmp_path)
    assert write_report(runs, tmp_path / "again.html").read_bytes() == html.encode("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.html", "report.html", "runs"]
    found = elements(html)
    tags = Counter(tag for tag, _ in found)
    assert tags["svg"] == len(PANELS) + 1
    assert not {"script", "link", "img", "iframe", "image"} & set(tags)
    references = [value for _, attrs in found for key, value in attrs.items() if key in ("href", "xlink:href", "src")]
    assert references and all(value and value.startswith("#") for value in references)
    ids = Counter(attrs["id"] for _, attrs in found if "id" in attrs)
    assert [name for name, count in ids.items() if count > 1] == []
    assert {value[1:] for value in references if value} <= set(ids)
    assert set(re.findall(r"url\((#?)", html)) == {"#"}
    assert str(tmp_path) not in html


def test_nothing_from_a_file_becomes_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> $x_$"
    summary = changed(
        **{key: evil for key in ("command", "commit", "created", "env", "algo", "model")},
        env_kwargs={evil: evil},
        versions={evil: evil},
        machine={"gpu": evil},
        config={evil: evil},
        seconds={evil: evil},
        trajectories={evil: evil},
    )
    short = success_only(20)
    folders = [write_run(tmp_path / "<b>x", summary, short), write_run(tmp_path / "$y_$", changed(seed=3), short)]
    html = page(folders, tmp_path)
    harmless = page([write_run(tmp_path / "c", history=short), folders[1]], tmp_path)
    # Every tag is one that a harmless report has too, and each occurrence of the text is escaped.
    assert {tag for tag, _ in elements(html)} == {tag for tag, _ in elements(harmless)}
    assert not [attrs for _, attrs in elements(html) if "onerror" in attrs]
    assert "<script" not in html and "<b>x" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 12


def test_missing_metrics_leave_out_points_and_panels(tmp_path: Path) -> None:
    history = [
        {"step": 1, "success": 0.1},
        {"step": 2, "success": None},
        {"step": 3},
        {"step": 3, "train_runtime": 9.0},
    ]
    history += [{"step": 4, "success": float("nan")}, {"step": 5, "success": 0.2}, {"step": 5, "success": 0.4}]
    folder = write_run(tmp_path / "run", history=history)
    run = read_run(folder)
    assert run.series("success") == ([1.0, 5.0], [0.1, 0.4])  # of a step that was logged twice the last value
    assert run.steps == 5
    text = words(page([folder], tmp_path))
    missing = ", ".join(panel.title for panel in PANELS[1:])
    assert f"Not in the log: {missing}." in text


def test_a_run_without_a_logged_step_has_results_all_the_same(tmp_path: Path) -> None:
    html = page([write_run(tmp_path / "run", history=[])], tmp_path)
    assert "0.80 [0.76, 0.83]" in html
    assert html.count("<svg") == 1


@pytest.mark.parametrize("name", ["summary.json", "history.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    (run / name).unlink()
    with pytest.raises(RunNotFoundError, match=re.escape(str(run / name))):
        read_run(run)
    with pytest.raises(RunNotFoundError, match="nowhere"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["summary.json", "history.json"])
@pytest.mark.parametrize("half", [b"", b'{"seed": 1, "resu', b"\xff\xfe{}", b"3"])
def test_half_a_file_is_refused_and_leaves_the_old_report(tmp_path: Path, name: str, half: bytes) -> None:
    run = write_run(tmp_path / "run")
    report = tmp_path / "report.html"
    report.write_text("the old one")
    (run / name).write_bytes(half)
    with pytest.raises(ValueError, match=re.escape(str(run / name))):
        write_report([run], report)
    assert report.read_text() == "the old one"


@pytest.mark.parametrize("key", sorted(set(SUMMARY) - {"warm_started"}))
def test_a_summary_that_lacks_a_key_is_refused(tmp_path: Path, key: str) -> None:
    run = write_run(tmp_path / "run", {name: value for name, value in SUMMARY.items() if name != key})
    with pytest.raises(ValueError, match=rf"summary.json: no key '{key}'"):
        read_run(run)


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (changed(seed="one"), "'seed' is 'one', of the wrong type"),
        (changed(results={"random": None}), "no result for 'random'"),
        (changed(results={"trained": {"n": 512}}), "results.trained.success is None, not a number"),
        (changed(results={"trained": result(float("nan"), 0, 1, 0)}), "results.trained.success is nan, not a number"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, summary: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_run(write_run(tmp_path / "run", summary))


def test_a_log_row_needs_a_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"history.json: not a list of log rows"):
        read_run(write_run(tmp_path / "run", history=[{"success": 1.0}]))


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run folder"):
        write_report([], tmp_path / "report.html")


def test_importing_the_report_draws_and_trains_nothing(root: Path) -> None:
    code = "import sys, ragen_trl.reporting.report; print({'matplotlib', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr
