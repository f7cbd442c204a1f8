"""Where a number comes from."""

from pathlib import Path

import pytest

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
