"""Recorded trajectories inside the page: that they are as on disk, and that nothing gets out of its block."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from ragen_trl.reporting.recorder import recordings
from tests.support.ragen_trl.recorded_runs import HOSTILE, LAKE, content, recorded_run
from tests.support.ragen_trl.reports import elements, page


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
                "label": "a",
                "steps": [{"name": "1", "block": "recording-0"}, {"name": "20", "block": "recording-1"}],
            },
            {"label": "b", "steps": [{"name": "5", "block": "recording-2"}]},
        ]
    }
    files = [path.read_bytes() for run in runs for path in recordings(run)]
    assert [attributes["id"] for attributes, _ in blocks] == ["recording-0", "recording-1", "recording-2"]
    assert [base64.b64decode(data) for _, data in blocks] == files


def test_only_the_script_of_the_page_may_run(tmp_path: Path) -> None:
    html = page([recorded_run(tmp_path / "run", 1, *rollouts(1))], tmp_path)
    (code,) = [text for attributes, text in scripts(html) if "type" not in attributes]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
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
    found = json.loads(gzip.decompress(base64.b64decode(block)))
    assert found["trajectories"][2]["turns"][0]["reply"] == HOSTILE[2]
