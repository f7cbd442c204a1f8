"""``python -m ragen_trl warm-start``: what becomes of a folder that holds something already."""

import logging
from pathlib import Path

import pytest

from ragen_trl.cli import main as cli
from ragen_trl.cli.main import main
from ragen_trl.imitation import fine_tuning

FEW = ["warm-start", "--demonstrations", "16", "--demo_batch_size", "16", "--max_turns", "2"]


def weights(folder: Path) -> tuple[int, bytes]:
    """When they were written, and what they are."""
    file = folder / "model.safetensors"
    return file.stat().st_mtime_ns, file.read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished warm start."""
    folder = tmp_path_factory.mktemp("warm") / "start"
    assert main([*FEW, "--output_dir", str(folder)]) == 0
    return folder


def test_a_warm_start_replaces_no_folder_but_one_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It deleted whatever --output_dir named once."""
    (tmp_path / "letters.txt").write_text("mine")
    assert main(["warm-start", "--demonstrations", "16", "--output_dir", str(tmp_path)]) == 2
    assert "holds no warm_start.json, so it is not replaced" in capsys.readouterr().err
    assert (tmp_path / "letters.txt").read_text() == "mine"


def test_a_finished_warm_start_is_made_once(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = weights(made)
    for again in ([*FEW, "--output_dir", str(made)], ["warm-start", "--config", str(made / "config.yaml")]):
        capsys.readouterr()
        assert main(again) == 0
        assert capsys.readouterr().out == f"{made} holds this warm start already; nothing to do\n"
    assert weights(made) == before


def test_another_warm_start_does_not_replace_it(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: half an hour of demonstrations was lost to a command repeated with another environment."""
    before = weights(made)
    assert main([*FEW, "--output_dir", str(made), "--env", "ragen/Bandit-v0", "--seed", "7"]) == 2
    said = capsys.readouterr().err
    assert "now 'ragen/Bandit-v0'" in said and "seed was unset, now 7" in said
    assert "--overwrite true" in said
    assert main([*FEW, "--output_dir", str(made), "--seed", "7", "--dry-run"]) == 0
    assert "which only --overwrite true replaces" in capsys.readouterr().out
    assert weights(made) == before


def test_one_that_does_not_tell_its_options_is_replaced_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "warm_start.json").write_text("{}")
    asked = [*FEW, "--output_dir", str(tmp_path / "start")]
    assert main(asked) == 2
    assert "does not tell its options; pass --overwrite true" in capsys.readouterr().err
    assert main([*asked, "--overwrite", "true"]) == 0
    assert weights(tmp_path / "start")
    assert main([*asked, "--overwrite", "false"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_ctrl_c_does_not_promise_what_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fine_tuning, "demonstrate", stop)
    assert main([*FEW, "--output_dir", str(tmp_path / "start")]) == 130
    assert "Stopped. If it has learnt for ten minutes, a checkpoint is kept." in capsys.readouterr().err
    assert not (tmp_path / "start").exists()


def test_the_main_process_alone_writes_the_options_beside_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each process wrote them, and one found that another had renamed its partial file."""
    logger = logging.getLogger("ragen_trl")
    before = logger.level
    monkeypatch.setattr(cli, "is_main", lambda: False)
    try:
        assert main([*FEW, "--output_dir", str(tmp_path / "start")]) == 0
    finally:
        logger.setLevel(before)  # a process that is not the main one is silenced for good
    assert not (tmp_path / "start" / "config.yaml").exists() and capsys.readouterr().out == ""
