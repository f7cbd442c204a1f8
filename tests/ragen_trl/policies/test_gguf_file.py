"""GGUF files as models: what a conversion keeps, what it refuses, and that it leaves a whole folder or nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from ragen_trl.policies.gguf_file import convert
from tests.support.ragen_trl.gguf_files import write_gguf


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """A GGUF file and the model in it."""
    path = tmp_path_factory.mktemp("gguf") / "Small.Q8_0.gguf"
    return path, write_gguf(path)


@pytest.fixture(scope="module")
def folder(made: tuple[Path, LlamaForCausalLM], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the file was converted to."""
    path = tmp_path_factory.mktemp("converted") / "small"
    licence = path.with_name("its-licence")
    licence.write_text("Do what you like.")
    assert convert(made[0], path, licence)
    return path


def test_a_folder_has_the_weights_of_the_file(made: tuple[Path, LlamaForCausalLM], folder: Path) -> None:
    """Packed matrices come back to the last bit, the pairs of rotary positions in Transformers' order."""
    model = AutoModelForCausalLM.from_pretrained(folder)
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


@pytest.mark.parametrize("where", ["tokenizer", "rename"])
def test_an_interrupted_conversion_leaves_nothing(
    made: tuple[Path, LlamaForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    target = tmp_path / "some" / "where"
    (target.with_name("where.partial")).mkdir(parents=True)
    (target.with_name("where.partial") / "model.safetensors").write_text("half of one, of a process that was killed")
    with monkeypatch.context() as patch:
        if where == "rename":
            patch.setattr(Path, "rename", interrupted)
        else:
            patch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(made[0], target)
    assert list(target.parent.iterdir()) == []
