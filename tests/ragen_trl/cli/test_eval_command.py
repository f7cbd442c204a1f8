"""``python -m ragen_trl eval --api_model``: a whole small evaluation over HTTP, and every mistake we know of."""

import json
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
    return dict(summary(folder)["results"][NAME])


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
        assert evaluate(server, tmp_path) == 0
        endpoint = f"{server.url}/chat/completions"
    results = summary(tmp_path)["results"]
    assert list(results) == ["random", NAME, "oracle"]
    found = results[NAME]
    assert (found["n"], found["success"], found["left_out"], found["failures"]) == (8, 1.0, 0, {})
    counts = summary(tmp_path)["api"]
    assert counts["endpoint"] == endpoint
    assert (counts["requests"], counts["retries"], counts["answers"]) == (8, 0, 8)
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (80, 24)
    assert results["random"]["success"] < 1.0
    out = capsys.readouterr().out
    assert f"{NAME}: success 1.000 [0.676, 1.000] (n=8)" in out
    assert "API: 8 requests, 0 retries, 0 failures, 8 answers, 80 prompt tokens, 24 completion tokens" in out


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
        assert reason.startswith("ApiError")
        assert "HTTP 503: overloaded" in reason
        assert count == 1
        counts = summary(tmp_path)["api"]
        assert (counts["requests"], counts["retries"], counts["failures"]) == (9, 1, 1)
        out = capsys.readouterr().out
        assert "(n=7, 1 left out after failures)" in out
        assert "1 x ApiError" in out
        poisoned[0] = False
        assert evaluate(server, tmp_path) == 0
        assert len(server.asked) == 10
    found = result(tmp_path)
    assert (found["n"], found["left_out"]) == (8, 0)
    assert (summary(tmp_path)["api"]["answers"], found["failures"]) == (1, {})
