"""Model names that lead nowhere: each refused before a trainer starts, with the name and the remedy."""

from pathlib import Path

import pytest
from transformers import Qwen2ForCausalLM

from ragen_trl.policies.model_support import ModelNotFoundError, check_model


@pytest.fixture
def saved(tmp_path: Path, tiny_model: Qwen2ForCausalLM) -> Path:
    tiny_model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_passes(saved: Path) -> None:
    check_model(str(saved))


def test_a_relative_folder_and_one_at_home_pass(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    monkeypatch.setenv("HOME", str(saved.parent))
    for name in ("model", "./model", "~/model"):
        check_model(name)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=f"'{tmp_path}' is a folder without config.json.*save_pretrained"):
        check_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./missing", "~/missing", "runs/a/model", "../missing"])
def test_a_path_to_nothing_is_named(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"there is no folder '{name}'; give a saved model's folder"):
        check_model(name)


@pytest.mark.parametrize("name", ["nobody/such-model", "such-model", "two words", "bad//name"])
def test_a_hub_id_that_cannot_be_loaded_is_named(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"'{name}'.*(check the spelling|give a saved model's folder)"):
        check_model(name)


@pytest.mark.parametrize("config", ["", "{", "[]", '{"model_type": "no-such-type"}', "{}"])
def test_a_broken_config_is_no_model(saved: Path, config: str) -> None:
    (saved / "config.json").write_text(config)
    with pytest.raises(ModelNotFoundError, match=str(saved)):
        check_model(str(saved))


def test_it_is_a_missing_file_to_who_does_not_know_us() -> None:
    assert issubclass(ModelNotFoundError, FileNotFoundError)
