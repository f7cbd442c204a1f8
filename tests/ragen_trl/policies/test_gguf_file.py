"""GGUF files as models: what a conversion keeps, what it refuses, and that it leaves a whole folder or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from ragen_trl.policies import gguf_file
from ragen_trl.policies.gguf_file import GGUFError, convert, converted_from, model_folder
from ragen_trl.policies.model_names import check_model
from ragen_trl.rollout.chat import Chat
from tests.support.ragen_trl.gguf_files import bpe, write_gguf


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


@pytest.mark.parametrize("text", ["\n\n1. Up", "  12", "7 8\n9", "frozen lake", "□ 4.99 € 🧊", "<|im_end|>x"])
def test_a_folder_has_the_tokens_of_the_file(folder: Path, text: str) -> None:
    r"""Transformers alone leaves out the split of digits: "\n\n1" had other tokens than the model was trained on."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == bpe().encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text


def test_the_chat_template_and_special_tokens_come_with_it(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.model_max_length)
    assert named == ("<|im_start|>", "<|im_end|>", "<|im_end|>", 2048)
    assert Chat(tokenizer).end_of_turn_id == 2


def test_the_folder_says_where_it_comes_from_and_has_the_licence(
    made: tuple[Path, LlamaForCausalLM], folder: Path
) -> None:
    note = json.loads((folder / "conversion.json").read_text())
    assert (note["file"], note["license"], len(note["sha256"])) == ("Small.Q8_0.gguf", "apache-2.0", 64)
    assert (folder / "LICENSE").read_text() == "Do what you like."


def test_a_second_conversion_has_nothing_to_do(
    made: tuple[Path, LlamaForCausalLM], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_file, "_read", lambda file: pytest.fail("the file was read again"))
    assert not convert(made[0], folder)


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


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a wheel", b"GGUF", b"GGUF\x03\x00\x00\x00 no more"])
def test_what_is_no_whole_gguf_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=r"bad\.gguf (is no GGUF file|cannot be read as a language model)"):
        convert(path, tmp_path / "out")
    assert [found.name for found in tmp_path.iterdir()] == ["bad.gguf"]


def test_a_file_that_ends_early_or_lacks_a_tensor_is_named(made: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    """Transformers fills missing weights with random numbers and goes on."""
    short, lacking = tmp_path / "short.gguf", tmp_path / "lacking.gguf"
    short.write_bytes(made[0].read_bytes()[:-5000])
    with pytest.raises(GGUFError, match=r"short\.gguf cannot be read as a language model.*get it again"):
        convert(short, tmp_path / "out")
    write_gguf(lacking, without="blk.1.ffn_up.weight")
    with pytest.raises(GGUFError, match=r"lacking\.gguf lacks weights .*model\.layers\.1\.mlp\.up_proj\.weight"):
        convert(lacking, tmp_path / "out")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["lacking.gguf", "short.gguf"]


def test_targets_that_hold_something_are_kept(made: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "conversion.json").write_text('{"sha256": "of another file"}')
    for name, said in (("full", "something else"), ("other", "another conversion")):
        with pytest.raises(GGUFError, match=f"{name} is not empty and holds {said}.*name another"):
            convert(made[0], tmp_path / name)
    with pytest.raises(GGUFError, match="full is a folder; give the GGUF file in it"):
        convert(tmp_path / "full", tmp_path / "new")
    with pytest.raises(GGUFError, match=r"/proc/new cannot be made .*name another folder"):
        convert(made[0], Path("/proc/new"))
    with pytest.raises(GGUFError, match=r"notes\.txt is a file; give a folder"):
        convert(made[0], tmp_path / "full" / "notes.txt")
    with pytest.raises(GGUFError, match="there is no file 'nowhere'; give the model's licence"):
        convert(made[0], tmp_path / "new", Path("nowhere"))


def test_a_missing_package_or_file_is_named(
    made: tuple[Path, LlamaForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in (check_model, model_folder):
        with pytest.raises(GGUFError, match=r"there is no file 'nowhere\.gguf'; check the path"):
            ask("nowhere.gguf")
    monkeypatch.setattr(gguf_file, "is_gguf_available", lambda: False)
    with pytest.raises(GGUFError, match=r"needs the package gguf; pip install -e '\.\[gguf\]'"):
        convert(made[0], tmp_path / "out")


def test_a_name_is_converted_once_into_the_cache(
    made: tuple[Path, LlamaForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    said: list[str] = []
    found = Path(model_folder(str(made[0]), said.append))
    assert found.is_relative_to(tmp_path / "assets" / "ragen_trl" / "gguf")
    assert found.name == f"Small.Q8_0-{str(converted_from(found))[:12]}"
    assert said == [f"converting {made[0]}, once; the folder is {found}"]
    assert model_folder(str(made[0]), said.append) == str(found)
    assert len(said) == 1


def test_other_names_stay_and_a_folder_at_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert model_folder("~/model") == str(tmp_path / "model")
    assert model_folder("Qwen/Qwen2.5-0.5B-Instruct") == "Qwen/Qwen2.5-0.5B-Instruct"


def test_a_configuration_is_read_without_a_conversion(made: tuple[Path, LlamaForCausalLM]) -> None:
    config = check_model(str(made[0]))
    assert (config.model_type, config.hidden_size, config.num_hidden_layers) == ("llama", 32, 2)
    assert [path.suffix for path in made[0].parent.iterdir()] == [".gguf"]
