"""``python -m ragen_trl eval`` with models of this machine: rates, stopping and going on, mistakes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.main import main
from ragen_trl.evaluation.folder import EpisodeFile
from ragen_trl.evaluation.players import fingerprint
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"
PLAIN = ["--think", "false", "--max_reply_length", "6", "--max_completion_length", "600", "--bf16", "false"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved model, never trained."""
    folder = tmp_path_factory.mktemp("models") / "small"
    small_model().save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


def evaluate(folder: Path, *options: str, episodes: int = 6) -> int:
    return main(["eval", *PLAIN, "--episodes", str(episodes), "--output_dir", str(folder), *options])


def episodes_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of every file, without times."""
    files = {path.name: path.read_text().splitlines() for path in (folder / "episodes").iterdir()}
    rows = {name: [json.loads(line) for line in lines] for name, lines in files.items()}
    return {name: [{k: v for k, v in row.items() if k != "seconds"} for row in each] for name, each in rows.items()}


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


@pytest.fixture(scope="module")
def whole(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation, two episodes a start state, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert evaluate(folder, "--model", model, "--env", LAKE, "--samples_per_start", "2") == 0
    return folder


def test_rates_can_be_recomputed_from_the_episodes(whole: Path) -> None:
    for rows in episodes_in(whole).values():
        assert [(row["seed"], row["sample"]) for row in rows] == [(seed, k) for seed in range(6) for k in range(2)]
        result = summary(whole)["results"][rows[0]["policy"]]
        assert result["success"] == pytest.approx(sum(row["success"] for row in rows) / 12)
        assert result["mean_return"] == pytest.approx(sum(row["return"] for row in rows) / 12)


def test_differences_are_those_of_the_episodes_by_start_state(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = shutil.copytree(model, tmp_path / "twin")
    assert evaluate(tmp_path / "eval", "--model", model, str(twin), "--env", BANDIT, "--samples_per_start", "2") == 0
    results = summary(tmp_path / "eval")["results"]
    means = {name: each["success"] for name, each in results.items()}
    first, second = results[model]["differences"], results[str(twin)]["differences"]
    assert list(first) == ["random"] and list(second) == ["random", model]
    assert second["random"]["value"] == pytest.approx(means[str(twin)] - means["random"])
    assert (second[model]["value"], second[model]["starts"]) == (0.0, 6)  # the same weights, the same replies
    assert second[model]["low"] == -second[model]["high"] < 0
    assert "differences" not in results["oracle"]
    assert f"above random  above {model}" in re.sub(r"  +", "  ", capsys.readouterr().out)


def test_a_stopped_evaluation_plays_nothing_twice_and_ends_like_a_whole_one(
    whole: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[int] = []
    add = EpisodeFile.add

    def add_and_stop(self: EpisodeFile, block: Any, write: bool = True) -> None:
        add(self, block, write)
        played.append(len(block))
        if len(played) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(EpisodeFile, "add", add_and_stop)
    options = ["--model", model, "--env", LAKE, "--samples_per_start", "2", "--rollout_batch_size", "5"]
    assert evaluate(tmp_path, *options) == 130
    kept = sum(played)
    assert not (tmp_path / "summary.json").exists()
    said = capsys.readouterr()
    assert said.err.strip().endswith(f" of 36 episodes are kept in {tmp_path}. To go on, run the same command again.")
    assert "\r" not in said.out
    assert evaluate(tmp_path, *options) == 0
    assert f"{kept} of 36 episodes are there already" in capsys.readouterr().out
    assert sum(played) == 36
    assert episodes_in(tmp_path) == episodes_in(whole)
    assert evaluate(tmp_path, *options) == 0
    assert sum(played) == 36


def test_another_model_under_the_same_name_is_played_anew(model: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    assert fingerprint(str(copy)) == fingerprint(model)
    options = ["--model", str(copy), "--env", BANDIT]
    assert evaluate(tmp_path / "out", *options) == 0
    files = set(episodes_in(tmp_path / "out"))
    changed = small_model()
    changed.lm_head.weight.data[0, 0] += 1
    changed.save_pretrained(copy)
    assert evaluate(tmp_path / "out", *options) == 0
    assert len(set(episodes_in(tmp_path / "out")) - files) == 1  # the baselines are as they were
    (tmp_path / "out" / "stages.json").write_text("{}")  # of a training run
    assert evaluate(tmp_path / "out", *options) == 2
