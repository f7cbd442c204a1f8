"""Published settings by name: what they set, what wins over them; and what holds for the embedded model alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.options import parse
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.config.recipes import PRESETS, defaults, is_embedded, options_for, read_options
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

LAKE, ANOTHER = "ragen/FrozenLake-v0", "Qwen/Qwen2.5-0.5B-Instruct"
EMBEDDED, OTHER = [], ["--model", ANOTHER]


def read(*argv: str, **given: Any) -> dict[str, Any]:
    """The options in effect."""
    (run, _, args), _ = parse(given, ["--use_cpu", "true", "--bf16", "false", *argv], RunArguments, WarmStartConfig)
    return {**vars(args), **vars(run)}


def preset(name: str) -> dict[str, Any]:
    return read_options(Path(name))


@pytest.mark.parametrize("model", [EMBEDDED, OTHER], ids=["embedded", "other"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_value_of_a_preset_is_in_effect(name: str, model: list[str]) -> None:
    found = read(*model, **preset(name))
    expected = options_for(preset(name), found["env"], None)
    assert {option: found[option] for option in expected} == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ragen", {"algo": "starpo", "advantage": "gae", "beta": 0.0, "filter_ratio": 1.0, "epsilon_high": 0.2}),
        ("starpo-s", {"algo": "starpo-s", "advantage": "gae", "beta": 0.0, "filter_ratio": 0.25, "epsilon_high": 0.28}),
        ("ragen2", {"filter_strategy": "top_p", "filter_ratio": 0.9, "max_actions_per_turn": 2, "eval_episodes": 512}),
        ("scout", {"advantage": "gae", "filter_ratio": 0.25, "max_turns": 25, "max_actions": 25}),
        ("gigpo-webshop", {"env": "ragen/WebShop-v0", "advantage": "gigpo", "num_generations": 8, "max_turns": 15}),
        ("a-star-po-paper", {"algo": "a-star-po", "beta1": 0.5, "beta2": 1e-3, "reference_samples": 8}),
        ("report-1", {"env": "ragen/WebShop-v0", "algo": "a-star-po", "beta1": 0.3, "kl_coef": 0.03}),
        ("report-2", {"env": "ragen/ToyShop-v0", "algo": "a-star-po", "beta1": 1 / 6, "kl_coef": 0.05}),
    ],
)
def test_what_the_presets_are_known_for(name: str, expected: dict[str, Any]) -> None:
    found = read("--think", "true", **preset(name))
    assert {option: found[option] for option in expected} == expected


@pytest.mark.parametrize(
    ("name", "updates"), [("ragen", 4), ("starpo-s", 1), ("ragen2", 4), ("scout", 4), ("gigpo-webshop", 2)]
)
def test_a_rollout_has_128_trajectories_and_its_published_number_of_updates(name: str, updates: int) -> None:
    found = read(**preset(name))
    micro_batches = found["steps_per_generation"]
    assert micro_batches * found["per_device_train_batch_size"] == 128
    assert micro_batches / found["gradient_accumulation_steps"] == updates


def test_a_saved_embedded_model_keeps_its_recipe_and_no_other_model_gets_it(tmp_path: Path) -> None:
    """A warm-started folder was once trained with the options of a model 5000 times as large, and learnt nothing."""
    own = str(tmp_path / "own")
    build_tiny_model(build_tiny_tokenizer()).save_pretrained(own)
    assert is_embedded(None) and is_embedded(own)
    assert defaults(LAKE, own) == defaults(LAKE, None)
    assert defaults(LAKE, own, "starpo", "gae")["critic_learning_rate"] == 1e-3
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for model in (str(other), ANOTHER, str(tmp_path / "nothing")):
        assert not is_embedded(model)
        assert "learning_rate" not in defaults(LAKE, model)
