"""A model's name leads to the same model in every command: a folder at ``~``, a hub id, half-precision weights."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, PreTrainedTokenizerFast, Qwen2ForCausalLM

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.cli.main import main
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from tests.support.ragen_trl.gguf_files import write_gguf
from tests.support.ragen_trl.trainers import SMALL

PLAY = "--env ragen/Bandit-v0 --think false --max_reply_length 4 --max_completion_length 16 --bf16 false".split()
FEW = [*"--demonstrations 4 --demo_batch_size 4".split(), *PLAY]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a model in bfloat16, as most on the hub are, that is not the embedded one to the commands."""
    home = tmp_path_factory.mktemp("home")
    tokenizer: PreTrainedTokenizerFast = build_tiny_tokenizer()
    model: Qwen2ForCausalLM = build_tiny_model(tokenizer, hidden_size=32, num_layers=2)
    del model.config.ragen_embedded
    model.to(torch.bfloat16).save_pretrained(home / "small")
    tokenizer.save_pretrained(home / "small")
    return home


def test_a_warm_start_computes_in_float32_whatever_was_saved(half: Path, tmp_path: Path) -> None:
    """It once learned in bfloat16, in which a small step of an optimizer is lost."""
    start = tmp_path / "start"
    assert main(["warm-start", "--model", str(half / "small"), "--output_dir", str(start), *FEW]) == 0
    assert AutoConfig.from_pretrained(half / "small").dtype == torch.bfloat16
    assert AutoConfig.from_pretrained(start).dtype == torch.float32


def test_a_folder_at_home_is_found_by_every_command(
    half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``make train MODEL=~/small`` hands the name over as it stands."""
    monkeypatch.setenv("HOME", str(half))
    assert main(["warm-start", "--model", "~/small", "--output_dir", str(tmp_path / "start"), *FEW]) == 0
    found = ["eval", "--model", "~/small", "--episodes", "2", "--output_dir", str(tmp_path / "eval"), *PLAY]
    assert main(found) == 0
    args = StarPOConfig(output_dir=str(tmp_path / "run"), **SMALL)
    assert StarPOTrainer("~/small", "ragen/Bandit-v0", args).model.config.hidden_size == 32


def test_a_trainer_takes_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    model = write_gguf(tmp_path / "Small.gguf")
    args = StarPOConfig(output_dir=str(tmp_path / "run"), **SMALL)
    trainer = StarPOTrainer(str(tmp_path / "Small.gguf"), "ragen/Bandit-v0", args)
    assert torch.equal(trainer.model.model.embed_tokens.weight, model.model.embed_tokens.weight)
    assert trainer.model.name_or_path.startswith(str(tmp_path / "assets"))


def test_a_hub_id_takes_the_same_path_as_a_folder(
    half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a cache as the hub's library fills it, without a connection."""
    cached = tmp_path / "hub" / "models--someone--small"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(COMMIT)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / COMMIT).symlink_to(half / "small")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    few = "--max_steps 1 --per_device_train_batch_size 4 --num_generations 4 --eval_episodes 4 --filter_ratio 1".split()
    assert main(["train", "--model", "someone/small", *few, *PLAY]) == 0
    assert main(["warm-start", "--model", "someone/small", "--output_dir", "start", *FEW]) == 0
    assert main(["eval", "--model", "someone/small", "--episodes", "2", *PLAY]) == 0
    runs = tmp_path / "runs"
    summary = json.loads((runs / "bandit-small-starpo-s-seed42" / "summary.json").read_text())
    assert summary["model"] == "someone/small"
    policies = json.loads((runs / "eval-small-on-bandit" / "evaluation.json").read_text())["policies"]
    assert policies["someone/small"]["model"] == f"someone/small@{COMMIT}"
