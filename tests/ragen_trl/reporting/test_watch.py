"""The report that is served while a run goes on."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from ragen_trl.errors import OptionError
from ragen_trl.reporting.watch import application, server


def log(folder: Path, step: int) -> None:
    (folder / "history.json").write_text(json.dumps([{"step": number, "return": 0.5} for number in range(step + 1)]))


def test_a_served_page_is_made_anew_when_the_run_has_gone_on(tmp_path: Path) -> None:
    client = application([tmp_path]).test_client()
    nothing = client.get("/")
    assert nothing.status_code == 503 and "holds no run" in nothing.text and "Refresh" in nothing.headers
    seen = set()
    for step in (3, 20):
        log(tmp_path, step)
        version, page = client.get("/version").text, client.get("/").text
        assert f'data-version="{version}"' in page and f"the last logged step is {step}." in page
        assert "connect-src 'self'" in page
        seen.add(version)
        assert client.get("/version").text == version
    assert len(seen) == 2


def test_a_served_page_is_for_this_machine_alone(tmp_path: Path) -> None:
    log(tmp_path, 3)
    client = application([tmp_path]).test_client()
    assert client.get("/", headers={"Host": "127.0.0.1:8765"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example:80"}).status_code == 403
    for path in ("/../history.json", "/history.json", "/%2e%2e/history.json"):
        assert client.get(path).status_code == 404
    with closing(server([tmp_path], 0)) as first, pytest.raises(OptionError, match="choose another --port"):
        server([tmp_path], first.effective_port)
