"""Recorded trajectories inside the page: what is packed, what is left out, and that nothing gets out of its block."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ragen_trl.reporting.recorded import RecordingError, recording_path, recordings
from ragen_trl.reporting.report import write_report
from ragen_trl.reporting.viewer import pack, script, spread
from tests.support.ragen_trl.recorded_runs import HOSTILE, LAKE, content, recorded_run
from tests.support.ragen_trl.reports import elements, page, words, write_run


def rollouts(*steps: int) -> list[dict[str, object]]:
    return [content("FrozenLake-v0", LAKE, ["a", "b"], step) for step in steps]


def scripts(html: str) -> list[tuple[dict[str, str | None], str]]:
    """Attributes and text of every script element, as a browser cuts them."""
    found: list[tuple[dict[str, str | None], str]] = []

    class Parser(HTMLParser):
        inside = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.inside = tag == "script"
            if self.inside:
                found.append((dict(attrs), ""))

        def handle_endtag(self, tag: str) -> None:
            self.inside = False

        def handle_data(self, data: str) -> None:
            if self.inside:
                found[-1] = (found[-1][0], found[-1][1] + data)

    Parser().feed(html)
    return found


def test_each_recording_is_in_the_page_as_it_is(tmp_path: Path) -> None:
    runs = [recorded_run(tmp_path / "a", 1, *rollouts(1, 20)), recorded_run(tmp_path / "b", 2, *rollouts(5))]
    index, *blocks, _ = scripts(page(runs, tmp_path))
    assert json.loads(index[1]) == {
        "runs": [
            {
                "label": "seed 1",
                "steps": [{"name": "1", "block": "recording-0"}, {"name": "20", "block": "recording-1"}],
            },
            {"label": "seed 2", "steps": [{"name": "5", "block": "recording-2"}]},
        ]
    }
    files = [path.read_bytes() for run in runs for path in recordings(run)]
    assert [attributes["id"] for attributes, _ in blocks] == ["recording-0", "recording-1", "recording-2"]
    assert [base64.b64decode(data) for _, data in blocks] == files


def test_only_the_script_of_the_page_may_run(tmp_path: Path) -> None:
    html = page([recorded_run(tmp_path / "run", 1, *rollouts(1))], tmp_path)
    runs = [text for attributes, text in scripts(html) if "type" not in attributes]
    assert runs == [script()[0]]
    digest = base64.b64encode(hashlib.sha256(runs[0].encode()).digest()).decode()
    (policy,) = [attributes["content"] for tag, attributes in elements(html) if "http-equiv" in attributes]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_nothing_that_a_model_wrote_becomes_markup(tmp_path: Path) -> None:
    harm = content(HOSTILE[0], HOSTILE[0], list(HOSTILE), actions=[HOSTILE[0]])
    html = page([recorded_run(tmp_path / "run", 1, harm)], tmp_path)
    harmless = page([recorded_run(tmp_path / "calm", 1, *rollouts(1))], tmp_path)
    assert [tag for tag, _ in elements(html)] == [tag for tag, _ in elements(harmless)]
    assert "onerror" not in html
    block = scripts(html)[1][1]
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", block)
    assert json.loads(gzip.decompress(base64.b64decode(block)))["texts"][3] == HOSTILE[2]


def test_labels_cannot_close_their_element(tmp_path: Path) -> None:
    name = "<script><!--'\"&"
    first = recorded_run(tmp_path / name, 1, *rollouts(1))
    html = page([first, recorded_run(tmp_path / "b", 1, *rollouts(1))], tmp_path)
    assert json.loads(scripts(html)[0][1])["runs"][0]["label"] == name
    assert len(scripts(html)) == 4


def test_a_run_without_recordings_is_named(tmp_path: Path) -> None:
    with_some, without = recorded_run(tmp_path / "a", 1, *rollouts(1)), recorded_run(tmp_path / "b", 2)
    text = words(page([with_some, without], tmp_path))
    assert "2 trajectories of 1 recorded rollouts. Nothing was recorded in: seed 2." in text
    bare = page([without], tmp_path)
    assert "No trajectories were recorded in this run." in words(bare)
    assert scripts(bare) == []


def test_a_page_has_no_more_than_its_budget_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = recorded_run(tmp_path / "many", 1, *rollouts(*range(1, 11)))
    few = recorded_run(tmp_path / "few", 2, *rollouts(1, 2))
    sizes = [len(base64.b64encode(path.read_bytes())) for run in (many, few) for path in recordings(run)]
    assert len(pack([many, few], ["", ""], budget=sum(sizes)).blocks) == 12
    found = pack([many, few], ["many", "few"], budget=sum(sizes) // 2)
    steps = [[step["name"] for step in run["steps"]] for run in found.index["runs"]]
    assert steps == [["1", "4", "7", "10"], ["1", "2"]]
    assert (found.found, found.trajectories) == (12, 12)
    least = pack([many, few], ["", ""], budget=0)
    assert [[step["name"] for step in run["steps"]] for run in least.index["runs"]] == [["10"], ["2"]]
    half = sum(sizes) // 2
    monkeypatch.setattr("ragen_trl.reporting.report.pack", lambda folders, labels: pack(folders, labels, half))
    assert "12 trajectories of 6 of 12 recorded rollouts; more would make the page too large" in words(
        page([many, few], tmp_path)
    )


def test_spread_keeps_the_ends() -> None:
    for count in range(1, 30):
        for kept in range(1, count + 1):
            places = spread(count, kept)
            assert len(set(places)) == kept
            assert places[-1] == count - 1
            assert kept == 1 or places[0] == 0


def test_a_wrong_recording_leaves_the_old_report(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "run", 1, *rollouts(1))
    recording_path(run, 2).write_bytes(b"half")
    report = tmp_path / "report.html"
    report.write_text("the old one")
    with pytest.raises(RecordingError, match="step-000002"):
        write_report([run], report)
    assert report.read_text() == "the old one"


def test_without_a_script_the_page_says_what_is_missing(tmp_path: Path) -> None:
    html = page([recorded_run(tmp_path / "run", 1, *rollouts(1))], tmp_path)
    assert "<noscript><p>The viewer of trajectories needs JavaScript" in html
    assert html.count("<svg") == page([write_run(tmp_path / "bare", history=[])], tmp_path).count("<svg")
