"""The benchmark of `make train`: which finished runs it takes."""

import json
from pathlib import Path

import pytest
import train


def test_a_finished_run_of_other_options_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: folders were found by their seeds alone, and a table could mix 300 and 5 updates."""
    called: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train.subprocess, "run", lambda command, check: called.append(command[1:]))
    folder = train.train(0, [], smoke=False)
    assert called == [["-m", "ragen_trl", "train", "--seed", "0", "--output_dir", "runs/benchmark-train-seed0"]]
    folder.mkdir(parents=True)
    made = {"command": "python -m ragen_trl train --seed 0 --output_dir runs/benchmark-train-seed0"}
    (folder / "summary.json").write_text(json.dumps(made))
    assert train.train(0, [], smoke=False) == folder and len(called) == 1
    with pytest.raises(train.OtherRunError, match="seed0', not of '.* --max_steps 5'; move it away"):
        train.train(0, ["--max_steps", "5"], smoke=False)
    train.train(1, ["--max_steps", "5"], smoke=False)
    assert called[1][-2:] == ["--max_steps", "5"]
