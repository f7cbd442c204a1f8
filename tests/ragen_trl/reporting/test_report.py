"""The report: what it reads and says, that its page is one safe, repeatable file, and the episodes inside it."""

import base64
import copy
import gzip
import hashlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

import ragen_trl.reporting.report
from ragen_trl.cli.main import main
from ragen_trl.errors import UserError
from ragen_trl.evaluation.evaluator import EvaluationResult, Row
from ragen_trl.evaluation.folder import EpisodeFile, episodes_path
from ragen_trl.evaluation.tables import aligned, result_table
from ragen_trl.reporting.report import Run, read_run, sentence, write_report
from ragen_trl.training.recorder import recordings, write_recording

# Finished runs, made up, and what their report page says


def result(success: float, low: float, high: float, mean_return: float, **other: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(EvaluationResult)), 0.0)
    values |= {"n": 512, "success": success, "success_low": low, "success_high": high, "mean_return": mean_return}
    values |= {"left_out": 0, "pass_at_k": {}, "score": None}
    return values | {"format_valid": 1.0, "return_stderr": 0.02} | other


SUMMARY: dict[str, Any] = {
    "command": "python -m ragen_trl train --env ragen/FrozenLake-v0",
    "commit": None,
    "created": "2026-01-02T03:04:05+00:00",
    "versions": {"torch": "2.13.0"},
    "machine": {"cpus": 2, "gpu": None},
    "seed": 1,
    "env": "ragen/FrozenLake-v0",
    "env_kwargs": {"size": 4},
    "algo": "starpo-s",
    "model": "tiny",
    "parameters": 1234567,
    "warm_started": True,
    "config": {"seed": 1, "output_dir": "runs/1", "learning_rate": 0.001},
    "results": {
        "random": result(0.23, 0.196, 0.268, 0.18, turns=7.1),
        "before": result(0.31, 0.272, 0.352, -0.26, turns=4.1, format_valid=0.93),
        "trained": result(0.8, 0.763, 0.832, 0.75, turns=2.7),
        "oracle": result(1.0, 0.993, 1.0, 0.95, turns=5.3),
    },
    "seconds": {"total": 512.61, "step_median": None},
    "trajectories": {"sampled": 25600, "used": 6400},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The summary with other values; a dict changes single keys of one."""
    summary = copy.deepcopy(SUMMARY)
    for key, value in changes.items():
        summary[key] = {**summary[key], **value} if isinstance(value, dict) else value
    return summary


def write_run(folder: Path, summary: Any = SUMMARY, history: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    history = success_only(20) if history is None else history
    (folder / "history.json").write_text(json.dumps(history), encoding="utf-8")
    return folder


def success_only(steps: int) -> list[dict[str, Any]]:
    """The log of a run."""
    return [{"step": step, "success": step / 100} for step in range(1, steps + 1)]


def page(folders: list[Path], output: Path) -> str:
    return write_report(folders, output / "report.html").read_text(encoding="utf-8")


def elements(html: str) -> list[tuple[str, dict[str, Any]]]:
    """Tags and attributes of a page."""
    return [(element.name, element.attrs) for element in BeautifulSoup(html, "html.parser").find_all(True)]


TABLE = """\
policy              success [95 %]   return ± s.e.  format ok  turns  tokens    n
random        0.230 [0.196, 0.268]   0.180 ± 0.020      1.000   7.10     0.0  512
(warm start)  0.310 [0.272, 0.352]  -0.260 ± 0.020      0.930   4.10     0.0  512
trained       0.800 [0.763, 0.832]   0.750 ± 0.020      1.000   2.70     0.0  512
oracle        1.000 [0.993, 1.000]   0.950 ± 0.020      1.000   5.30     0.0  512"""


def test_the_table_is_exact() -> None:
    assert aligned(result_table(SUMMARY)) == TABLE


def above(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "starts": 128}


def test_the_cells_of_an_evaluation() -> None:
    passes = {k: {"value": v, "low": v - 0.1, "high": v + 0.1, "starts": 32} for k, v in (("1", 0.5), ("2", 0.75))}
    common = {"n": 128, "return_stderr": 0.01, "turns": 2.5, "reply_tokens": 30.0}
    second = {"pass_at_k": passes, "left_out": 3, "differences": {"random": above(0.3)}}
    results = {
        "random": result(0.2, 0.1, 0.3, 0.2, **common),
        "runs/a|b": result(0.5, 0.4, 0.6, 0.5, **common, **second),
        "oracle": {"not_played": "no oracle policy: nobody wrote one"},
    }
    titles, *rows = result_table({"results": results})
    assert titles[:4] == ["policy", "success [95 %]", "above random", "pass@2 [95 %]"]  # pass@1 is the success rate
    assert rows[1] == [
        *("runs/a|b", "0.500 [0.400, 0.600]", "+0.300 [+0.200, +0.400]", "0.750 [0.650, 0.850]", "0.500 ± 0.010"),
        *("1.000", "2.50", "30.0", "128 (+3 failed)"),
    ]
    assert rows[0][2:4] == ["", ""]  # neither a difference nor a pass@2 of the random policy
    assert rows[2][:3] == ["oracle", "not played", ""]
    assert {len(row) for row in rows} == {len(titles)}


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


def test_the_headline_names_a_collapse_a_recovery_and_replies_at_their_cap() -> None:
    successes = [0.8] * 20 + [0.0] * 20 + [0.9] * 20
    for last, said in ((40, "did not recover."), (60, "recovered to 0.90.")):
        history = [{"step": 1 + step, "success": one} for step, one in enumerate(successes[:last])]
        text = f" Success in training fell from 0.80 to 0.00 by step 40 and {said}"
        assert text in sentence(Run(Path("run"), SUMMARY, history))
    cut = [{"step": step, "completions/clipped_ratio": step / 100} for step in range(1, 31)]
    assert sentence(Run(Path("run"), SUMMARY, cut)).endswith(
        "At the end 20% of the trajectories ended with a reply that its token limit cut."
    )


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
    assert len(scripts(html)) == len(scripts(harmless)) and "<b>x" not in html
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
    (write_run(tmp_path / "run") / "summary.json").unlink()
    html = page([tmp_path / "run"], tmp_path)
    assert "no results yet; the last logged step is 20" in html and "<svg" in html
    assert "<title>step 20: success 0.200, mean of the last 0.180</title>" in html  # under the mouse
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no run"):
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


# What can be read turn by turn


def recorded_run(folder: Path, seed: int, *steps: int) -> Path:
    """A finished run with these rollouts, and without logged steps, since drawing curves takes longest."""
    for step in steps:
        write_recording(folder, {"step": step, "trajectories": []})
    return write_run(folder, changed(seed=seed), [])


def played(folder: Path, policy: str, *replies: str) -> list[Row]:
    """A file of failed episodes, one for each of these replies; returns the episodes."""
    measured = ("success", "return", "turns", "actions", "reply_tokens", "truncated", "format_valid", "action_valid")
    row = {**dict.fromkeys(measured, 0.0), "turns": 1.0, "sample": 0, "limit": "", "error": ""}
    rows = [
        {**row, "seed": seed, "transcript": [{"observation": "Up?\x1b[2J", "reply": reply, "reward": 0.0}]}
        for seed, reply in enumerate(replies)
    ]
    EpisodeFile(episodes_path(folder, policy, "Lake", {}), policy, "Lake").add(rows)
    return rows


def scripts(html: str) -> list[tuple[dict[str, Any], str]]:
    """Attributes and text of every script element."""
    return [(element.attrs, element.get_text()) for element in BeautifulSoup(html, "html.parser").find_all("script")]


def test_what_was_recorded_and_played_is_in_the_page(tmp_path: Path) -> None:
    runs = [recorded_run(tmp_path / "a", 1, 1, 20), recorded_run(tmp_path / "b", 2, 5)]
    rows = {name: played(runs[0], name, f"<answer>{name}</answer>") for name in ("trained", "random")}
    index, *blocks, _ = scripts(page(runs, tmp_path))
    packed = {attributes["id"]: base64.b64decode(data) for attributes, data in blocks}
    found = {
        (run["label"], source["name"]): packed[source["block"]]
        for run in json.loads(index[1])["runs"]
        for source in run["sources"]
    }
    steps = [("a", "training: step 1"), ("a", "training: step 20"), ("b", "training: step 5")]
    names = [("a", "evaluation: random"), ("a", "evaluation: trained")]
    assert list(found) == [*names, *steps]  # in the order of the table, and as time went
    files = [path.read_bytes() for run in runs for path in recordings(run)]
    assert [found[step] for step in steps] == files
    for run, name in names:
        (episode,) = json.loads(gzip.decompress(found[run, name]))["trajectories"]
        assert episode["turns"] == rows[name.removeprefix("evaluation: ")][0]["transcript"]


def test_the_oldest_rollouts_give_way_to_a_page_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded_run(tmp_path / "run", 1, *range(1, 7))
    played(run, "trained", "Up")
    sizes = [len(base64.b64encode(path.read_bytes())) for path in recordings(run)]
    whole = sum(len(data) for _, data in scripts(page([run], tmp_path))[1:-1])
    monkeypatch.setattr(ragen_trl.reporting.report, "_LARGEST_PAGE", whole - sum(sizes[:2]))
    html = page([run], tmp_path)
    names = [source["name"] for source in json.loads(scripts(html)[0][1])["runs"][0]["sources"]]
    assert names == ["evaluation: trained", *(f"training: step {step}" for step in range(3, 7))]
    assert "too large to open: 2 sources" in html


def test_an_evaluation_and_a_run_without_results_are_reported_from_their_episodes(tmp_path: Path) -> None:
    played(tmp_path / "run", "random", "Up", "Down")
    played(tmp_path / "run", "a/model", "Up")
    assert "Success on held-out start states: random 0.00 [0.00, 0.77] (n=2), a/model 0.00" in page(
        [tmp_path / "run"], tmp_path
    )


def test_show_prints_the_episodes_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = played(tmp_path, "trained", "<answer>Up</answer>", "Down\x1b]0;evil\x07", "Left")
    EpisodeFile(episodes_path(tmp_path, "trained", "Lake", {}), "trained", "Lake").add([{**rows[0], "success": 1.0}])
    played(tmp_path, "oracle", "Right")
    assert main(["show", str(tmp_path), "--failed", "--n", "1"]) == 0
    assert capsys.readouterr().out == (
        "== trained, seed 1: no success, return 0\n-- turn 1, reward 0\nUp?\N{REPLACEMENT CHARACTER}[2J\n"
        "> Down\N{REPLACEMENT CHARACTER}]0;evil\N{REPLACEMENT CHARACTER}\n\n"
        "1 of 2 failed episodes of trained; policies here: trained, oracle\n"
    )
    assert main(["show", str(tmp_path), "--policy", "oracle"]) == 0
    assert "> Right" in capsys.readouterr().out
    for folder, policy in ((tmp_path / "empty", "trained"), (tmp_path, "traned")):
        assert main(["show", str(folder), "--policy", policy]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_reply_cannot_leave_its_script_element(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"
    run = recorded_run(tmp_path / "run", 1, 1)
    played(run, f"trained{evil}", evil)
    harmless = recorded_run(tmp_path / "harmless", 1, 1)
    played(harmless, "trained", "Up")
    html, tame = page([run], tmp_path), page([harmless], tmp_path / "tame")
    assert [tag for tag, _ in elements(html)] == [tag for tag, _ in elements(tame)]
    code = scripts(html)[-1][1]  # nor does the viewer make markup of a text
    assert not re.findall(r"(inner|outer|Adjacent)HTML|document\.write|\beval\(|new Function|DOMParser", code)


def test_only_the_script_of_the_page_may_run(tmp_path: Path) -> None:
    html = page([recorded_run(tmp_path / "run", 1, 1)], tmp_path)
    (code,) = [text for attributes, text in scripts(html) if "type" not in attributes]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    (policy,) = [attributes["content"] for tag, attributes in elements(html) if "http-equiv" in attributes]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
