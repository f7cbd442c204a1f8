"""The report that is served while a run goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from ragen_trl.errors import OptionError
from ragen_trl.reporting.watch import server


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of the report on ``tmp_path``."""
    with server([tmp_path], 0) as served:
        thread = Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def log(folder: Path, step: int) -> None:
    (folder / "history.json").write_text(json.dumps([{"step": number, "return": 0.5} for number in range(step + 1)]))


def test_a_served_page_is_made_anew_when_the_run_has_gone_on(address: str, tmp_path: Path) -> None:
    nothing = httpx.get(address)
    assert nothing.status_code == 503 and "holds no run" in nothing.text and "refresh" in nothing.headers
    seen = set()
    for step in (3, 20):
        log(tmp_path, step)
        version, page = httpx.get(f"{address}/version").text, httpx.get(address).text
        assert f'data-version="{version}"' in page and f"the last logged step is {step}." in page
        assert "connect-src 'self'" in page
        seen.add(version)
        assert httpx.get(f"{address}/version").text == version
    assert len(seen) == 2


def test_a_served_page_is_for_this_machine_alone(address: str, tmp_path: Path) -> None:
    log(tmp_path, 3)
    assert httpx.get(address, headers={"Host": "evil.example:80"}).status_code == 403
    for path in ("/../history.json", "/history.json", "/%2e%2e/history.json"):
        assert httpx.get(f"{address}{path}").status_code == 404
    with pytest.raises(OptionError, match="choose another --port"):
        server([tmp_path], int(address.rpartition(":")[2]))
