"""The commands and folders that are not theirs; what they answer to nothing and to a wrong name."""

from pathlib import Path

import pytest

from ragen_trl.cli.main import main


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(command in usage for command in ("train", "warm-start", "eval", "report"))
    assert main([]) == 2
    assert main(["trian"]) == 2
    assert "unknown command 'trian'; did you mean train?" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["train", "--output_dir", str(folder)]) == 2
        assert "error: " in capsys.readouterr().err
    assert main(["warm-start", "--demonstrations", "16", "--output_dir", str(tmp_path / "file")]) == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_a_warm_start_replaces_no_folder_but_one_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It deleted whatever --output_dir named once."""
    (tmp_path / "letters.txt").write_text("mine")
    assert main(["warm-start", "--demonstrations", "16", "--output_dir", str(tmp_path)]) == 2
    assert "holds no warm_start.json, so it is not replaced" in capsys.readouterr().err
    assert (tmp_path / "letters.txt").read_text() == "mine"
