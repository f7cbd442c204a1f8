"""``python -m ragen_trl eval`` and ``play``: models of this machine and behind an API, stopping and going on, files."""

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.main import main
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.comparison import fingerprint
from ragen_trl.evaluation.evaluator import Row
from ragen_trl.evaluation.folder import EpisodeFile, episodes_path, read_episodes
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload
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
    """The lines of every file."""
    files = {path.name: gzip.decompress(path.read_bytes()).splitlines() for path in (folder / "episodes").iterdir()}
    return {name: [json.loads(line) for line in lines] for name, lines in files.items()}


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


def test_play_shows_the_episodes_of_a_saved_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--env", BANDIT, "--episodes", "2", "--think", "false", "--max_reply_length", "4"]
    assert main(["play", "--model", model, *options]) == 0
    said = capsys.readouterr().out
    assert said.count("== Bandit-v0, seed") == said.count("Machines: ") == said.count("> <answer>") == 2
    assert said.count("return ") == 2


# The file of the episodes


def stored(seed: int, sample: int = 0) -> Row:
    measured = ("success", "turns", "actions", "reply_tokens", "truncated", "format_valid", "action_valid")
    row = {"seed": seed, "sample": sample, "limit": "turns", "return": 0.1 + 0.2, "faults": ["wrong price"]}
    return {**row, **dict.fromkeys(measured, 1)}


def file_of(folder: Path, policy: str, env: str, turns: int) -> EpisodeFile:
    return EpisodeFile(episodes_path(folder, policy, env, {"max_turns": turns}), policy, env)


def test_what_is_added_is_found_again_to_the_last_digit(tmp_path: Path) -> None:
    file, turns = file_of(tmp_path, "a", "Lake", 3), [{"observation": "é?", "reply": "é!", "reward": 1.0}]
    file.add([{**stored(1), "limit": "crash"}, stored(0, 1)])
    file.add([{**stored(0), "transcript": turns}, stored(1)])  # the one that had crashed, again
    rows = [{"policy": "a", "env": "Lake", **stored(*key)} for key in ((0, 0), (0, 1), (1, 0))]
    again = file_of(tmp_path, "a", "Lake", 3)
    assert [again.rows[key] for key in sorted(again.rows)] == rows
    assert [row.get("transcript") for row in read_episodes(file.path)] == [turns, None, None]


@pytest.mark.parametrize("line", ["{", "[1]", '{"seed": 0}', '{"seed": NaN}', json.dumps({**stored(1), "turns": ""})])
def test_a_damaged_file_of_episodes_is_named(tmp_path: Path, line: str) -> None:
    file = file_of(tmp_path, "a", "Lake", 3)
    file.add([stored(0)])
    whole = file.path.read_bytes()
    for damaged in (whole + gzip.compress(line.encode()), whole[:-9], b"no gzip"):
        file.path.write_bytes(damaged)
        with pytest.raises(OptionError, match=rf"{file.path} is damaged .*; delete it; an evaluation"):
            file_of(tmp_path, "a", "Lake", 3)


def test_other_names_and_other_settings_have_files_of_their_own(tmp_path: Path) -> None:
    file_of(tmp_path, "a", "Lake", 3).add([stored(0)])
    for policy, env, turns in (("b", "Lake", 3), ("a", "Room", 3), ("a", "Lake", 4), ("a/", "Lake", 3)):
        assert file_of(tmp_path, policy, env, turns).rows == {}


# A model behind an API: a whole small evaluation over HTTP


KEY = "sk-very-secret-0123456789"
NAME = "risky (API)"


def risky(payload: Payload) -> str:
    """The better arm, always."""
    return "<think>Dragons are rich.</think><answer>Dragon</answer>"


def ask(server: OpenAIServer, folder: Path | str, *more: str) -> int:
    options = ["--env", "ragen/Bandit-v0", "--episodes", "8", "--api_model", "risky", "--output_dir", str(folder)]
    return main(["eval", *options, "--api_base", server.url, *more])


def result(folder: Path) -> dict[str, Any]:
    return dict(summary(folder)["results"][NAME])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, in the only place where it is taken from."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_episodes_that_the_api_failed_are_left_out_and_asked_again_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poisoned = [True]

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(503, "overloaded") if poisoned[0] and payload == server.asked[0] else None

    with OpenAIServer(risky, fault, key=KEY) as server:
        assert ask(server, tmp_path, "--api_retries", "1") == 0
        found = result(tmp_path)
        assert (found["n"], found["success"], found["left_out"]) == (7, 1.0, 1)
        ((reason, count),) = found["failures"].items()
        assert "HTTP 503: overloaded" in reason
        assert count == 1
        assert list(summary(tmp_path)["results"]) == ["random", NAME, "oracle"]
        counts = summary(tmp_path)["api"]
        assert counts["endpoint"] == f"{server.url}/chat/completions"
        assert (counts["requests"], counts["failures"], counts["answers"]) == (9, 1, 7)
        assert (counts["prompt_tokens"], counts["completion_tokens"]) == (70, 21)
        out = capsys.readouterr().out
        assert "(n=7, 1 left out after failures)" in out and f"1 x {server.url}" in out
        assert "API: 9 requests, 1 failures, 7 answers, 70 prompt tokens, 21 completion tokens" in out
        poisoned[0] = False
        assert ask(server, tmp_path) == 0
        assert len(server.asked) == 10
    found = result(tmp_path)
    assert (found["n"], found["left_out"]) == (8, 0)
    assert (summary(tmp_path)["api"]["answers"], found["failures"]) == (1, {})
