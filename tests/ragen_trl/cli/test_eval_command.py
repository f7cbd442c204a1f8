"""``python -m ragen_trl eval --api_model``: a whole small evaluation over HTTP, and every mistake we know of."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.main import main
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload

KEY = "sk-very-secret-0123456789"
NAME = "risky (API)"


def risky(payload: Payload) -> str:
    """The better arm, always."""
    return "<think>Dragons are rich.</think><answer>Dragon</answer>"


def evaluate(server: OpenAIServer, folder: Path | str, *more: str) -> int:
    options = ["--env", "ragen/Bandit-v0", "--episodes", "8", "--api_model", "risky", "--output_dir", str(folder)]
    return main(["eval", *options, "--api_base", server.url, *more])


def result(folder: Path) -> dict[str, Any]:
    return dict(summary(folder)["environments"]["Bandit-v0"]["results"][NAME])


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, in the only place where it is taken from."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_a_model_behind_an_api_stands_between_random_and_oracle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with OpenAIServer(risky, key=KEY) as server:
        assert evaluate(server, tmp_path, "--api_prompt_price", "1", "--api_completion_price", "10") == 0
        endpoint = f"{server.url}/chat/completions"
    results = summary(tmp_path)["environments"]["Bandit-v0"]["results"]
    assert list(results) == ["random", NAME, "oracle"]
    found = results[NAME]
    assert (found["n"], found["success"], found["left_out"], found["failures"]) == (8, 1.0, 0, {})
    counts = summary(tmp_path)["api"]
    assert counts["endpoint"] == endpoint
    assert (counts["requests"], counts["retries"], counts["answers"]) == (8, 0, 8)
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (80, 24)
    assert counts["cost"] == pytest.approx((80 * 1 + 24 * 10) / 1e6)
    assert results["random"]["success"] < 1.0
    assert (results["random"]["normalised"], found["normalised"], results["oracle"]["normalised"]) == (0.0, 1.0, 1.0)
    out = capsys.readouterr().out
    assert f"{NAME}: success 1.000 [0.676, 1.000] (n=8)" in out
    assert "API: 8 requests (0 again, 0 given up), 8 answers with 80 + 24 tokens, cost 0.00032" in out


def test_the_model_is_spoken_to_as_a_pretrained_one_is(tmp_path: Path) -> None:
    """Regression: without --model the defaults were those of the embedded one, which replies in 24 tokens."""
    with OpenAIServer(risky) as server:
        assert evaluate(server, tmp_path, "--system_prompt", "be bold", "--eval_temperature", "0.5") == 0
    asked = server.asked[0]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("risky", 400, 0.5)
    assert asked["messages"][0] == {"role": "system", "content": "be bold"}
    assert "<think>" in asked["messages"][1]["content"]
    assert len(asked["messages"]) == 2  # no prefix of a reply: the model writes it


def test_episodes_that_the_api_failed_are_left_out_and_asked_again_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poisoned = [True]

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(503, "overloaded") if poisoned[0] and payload == server.asked[0] else None

    with OpenAIServer(risky, fault, key=KEY) as server:
        assert evaluate(server, tmp_path, "--api_retries", "1") == 0
        found = result(tmp_path)
        assert (found["n"], found["success"], found["left_out"]) == (7, 1.0, 1)
        ((reason, count),) = found["failures"].items()
        assert reason.startswith("ApiUnavailableError")
        assert "HTTP 503: overloaded" in reason
        assert count == 1
        counts = summary(tmp_path)["api"]
        assert (counts["requests"], counts["retries"], counts["failures"]) == (9, 1, 1)
        out = capsys.readouterr().out
        assert "(n=7, 1 left out after failures)" in out
        assert "1 x ApiUnavailableError" in out
        poisoned[0] = False
        assert evaluate(server, tmp_path) == 0
        assert len(server.asked) == 10
    found = result(tmp_path)
    assert (found["n"], found["left_out"]) == (8, 0)
    assert (summary(tmp_path)["api"]["answers"], found["failures"]) == (1, {})


def test_the_key_is_in_no_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in what is printed or logged nor in a file; the server quotes the key in an error."""
    with caplog.at_level(logging.INFO), OpenAIServer(
        risky, lambda payload, attempt: Fault(400, f"bad {KEY}") if payload == server.asked[0] else None
    ) as server:
        assert evaluate(server, tmp_path / "out") == 0
    said = capfd.readouterr()
    assert "bad ***" in said.out
    assert KEY not in said.out + said.err + caplog.text
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"api_cache.sqlite", "summary.json", "results.md", "evaluation.json"} < {path.name for path in written}
    assert not any(KEY.encode() in path.read_bytes() for path in written)


def test_answers_kept_in_a_file_serve_other_folders(tmp_path: Path) -> None:
    kept = ["--api_cache", str(tmp_path / "kept.sqlite")]
    with OpenAIServer(risky) as server:
        assert evaluate(server, tmp_path / "one", *kept) == 0
        assert evaluate(server, tmp_path / "two", *kept) == 0
        assert len(server.asked) == 8
    assert summary(tmp_path / "two")["api"]["stored_answers"] == 8
    assert result(tmp_path / "one")["success"] == result(tmp_path / "two")["success"]


def test_all_episodes_lost_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every first turn is answered, every second one fails, so there is no rate to report."""

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(400, "too long") if len(payload["messages"]) > 1 else None

    with OpenAIServer(lambda payload: "I pass.", fault) as server:
        assert evaluate(server, tmp_path, "--max_turns", "2") == 2
    captured = capsys.readouterr()
    assert f"error: {NAME} in Bandit-v0: all of 8 episodes failed without the policy, 8 of them with: " in captured.err
    assert "API: 16 requests (0 again, 8 given up)" in captured.out
    assert "ApiRefusedError" in result(tmp_path)["not_played"]  # the baselines are there all the same


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--api_model", "m"], "set OPENAI_BASE_URL"),
        (["--api_model", "m", "--api_base", "localhost:8000"], "not an http address"),
        (["--api_base", "http://localhost/v1"], "api_base is 'http://localhost/v1', but there is no api_model"),
        (["--api_model", "m", "--api_base", "http://x/v1", "--api_prompt_price", "1"], "give both, or none"),
        (["--api_model", "m", "--api_base", "http://x/v1", "--api_leave_out", "model"], "model cannot be left out"),
        (["--api_model", "m", "--api_base", "http://x/v1", "--api_token_limit", "n"], "token_limit is 'n'"),
        (["--api_model", "m", "--api_base", "http://x/v1", "--api_concurrency", "0"], "concurrency is 0"),
    ],
)
def test_a_mistake_gets_one_line_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "--env", "ragen/Bandit-v0", "--episodes", "8", *options]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert "random" not in captured.out
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_wrong_key_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(risky, key="another-key-entirely") as server:
        assert evaluate(server, tmp_path) == 2
    error = capsys.readouterr().err
    assert "HTTP 401" in error
    assert "set OPENAI_API_KEY" in error
    assert KEY not in error
