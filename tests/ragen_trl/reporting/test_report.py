"""The report: what it reads, what it says in words and numbers, and that its page is one safe, repeatable file."""

import json
import re
from pathlib import Path

import pytest

from ragen_trl.errors import UserError
from ragen_trl.evaluation.tables import aligned
from ragen_trl.reporting.report import Run, read_run, results_table, sentence, write_report
from tests.support.ragen_trl.reports import (
    SUMMARY,
    changed,
    elements,
    page,
    result,
    success_only,
    write_run,
)

TABLE = """\
policy              success [95 %]   return ± s.e.  format ok  turns  tokens    n
random        0.230 [0.196, 0.268]   0.180 ± 0.020      1.000   7.10     0.0  512
(warm start)  0.310 [0.272, 0.352]  -0.260 ± 0.020      0.930   4.10     0.0  512
trained       0.800 [0.763, 0.832]   0.750 ± 0.020      1.000   2.70     0.0  512
oracle        1.000 [0.993, 1.000]   0.950 ± 0.020      1.000   5.30     0.0  512"""


def test_the_table_is_exact() -> None:
    assert aligned(results_table(SUMMARY)) == TABLE


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


@pytest.mark.parametrize("name", ["summary.json", "history.json"])
@pytest.mark.parametrize("half", [b"", b'{"seed": 1, "resu', b"\xff\xfe{}", b"3"])
def test_half_a_file_is_refused_and_leaves_the_old_report(tmp_path: Path, name: str, half: bytes) -> None:
    run = write_run(tmp_path / "run")
    report = tmp_path / "report.html"
    report.write_text("the old one")
    (run / name).write_bytes(half)
    with pytest.raises(UserError, match=re.escape(str(run / name))):
        write_report([run], report)
    assert report.read_text() == "the old one"


def test_a_run_that_goes_on_and_a_scripts_are_shown_as_far_as_they_are(tmp_path: Path) -> None:
    """Both leave checkpoints."""
    checkpoint = tmp_path / "run" / "checkpoint-20"
    checkpoint.mkdir(parents=True)
    state = {"global_step": 20, "log_history": success_only(20)}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    html = page([tmp_path / "run"], tmp_path)
    assert "no results yet; the last logged step is 20" in html and "<svg" in html
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no checkpoint"):
        read_run(tmp_path / "empty")


def test_tokens_of_the_hub_are_not_in_the_page(tmp_path: Path) -> None:
    secret = "hf_abcdefghijklmnopqrst"
    summary = changed(
        command=f"python -m ragen_trl train --hub_token {secret} --seed 1",
        config={"hub_token": "other secret", "model_init_kwargs": f"{{'token': '{secret}'}}"},
    )
    html = page([write_run(tmp_path / "run", summary, [])], tmp_path)
    assert secret not in html and "other secret" not in html
    assert "--hub_token *** --seed 1" in html
