"""Model names that lead nowhere: each refused before a trainer starts, with the name and the remedy."""

from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

from ragen_trl.policies.adapters import name_base_absolutely
from ragen_trl.policies.model_names import ModelNotFoundError, check_model, commit_of


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


def test_an_adapter_whose_base_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "runs/smol/warm_start"}')
    with pytest.raises(ModelNotFoundError, match="is an adapter of 'runs/smol/warm_start'.*write its place into"):
        check_model(str(tmp_path))


@pytest.mark.parametrize("config", ["", "{", "{}", '{"base_model_name_or_path": null}'])
def test_an_adapter_that_names_no_base_is_named(tmp_path: Path, config: str) -> None:
    """Regression: a traceback of json, KeyError or TypeError."""
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(ModelNotFoundError, match="adapter_config.json names no model; write its folder"):
        check_model(str(tmp_path))


def test_the_folder_of_make_smollm2_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match="make smollm2 makes it"):
        check_model("models/SmolLM2-135M-Instruct")


def test_an_adapter_finds_its_base_from_everywhere(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    adapter = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("model"), adapter)
    assert model.peft_config["default"].base_model_name_or_path == "model"
    name_base_absolutely(model)
    model.save_pretrained("adapter")
    monkeypatch.chdir("/")
    assert check_model(str(saved.parent / "adapter")).model_type == "qwen2"


def test_it_is_a_missing_file_to_who_does_not_know_us() -> None:
    assert issubclass(ModelNotFoundError, FileNotFoundError)


def test_a_name_of_the_hub_is_known_by_the_commit_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers 5.23 no longer keeps it in the configuration, so that results lost it without a word."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "hub" / "models--someone--model"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert (commit_of("someone/model"), commit_of("someone/else")) == (commit, None)
