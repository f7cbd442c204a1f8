"""``python -m ragen_trl warm-start``: what becomes of a folder that holds something already."""

from pathlib import Path

import pytest

from ragen_trl.cli.main import main


def test_a_warm_start_replaces_no_folder_but_one_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It deleted whatever --output_dir named once."""
    (tmp_path / "letters.txt").write_text("mine")
    assert main(["warm-start", "--demonstrations", "16", "--output_dir", str(tmp_path)]) == 2
    assert "so it is not replaced" in capsys.readouterr().err
    assert (tmp_path / "letters.txt").read_text() == "mine"
