"""Published settings by name: what they set, what wins over them, what the help says about them."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.options import parse
from ragen_trl.config import recipes
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.config.recipes import PRESETS, preset_options, read_options

EMBEDDED, OTHER = [], ["--model", "Qwen/Qwen2.5-0.5B-Instruct"]


def read(*argv: str, **given: Any) -> dict[str, Any]:
    """The options in effect."""
    (run, _, args), _ = parse(given, ["--use_cpu", "true", "--bf16", "false", *argv], RunArguments, WarmStartConfig)
    return {**vars(args), **vars(run)}


@pytest.mark.parametrize("model", [EMBEDDED, OTHER], ids=["embedded", "other"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_value_of_a_preset_is_in_effect(name: str, model: list[str]) -> None:
    found = read("--preset", name, *model)
    expected = preset_options(name, found["env"])
    assert {option: found[option] for option in expected} == expected
    assert found["preset"] == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ragen", {"algo": "starpo", "advantage": "gae", "beta": 0.0, "filter_ratio": 1.0, "epsilon_high": 0.2}),
        ("starpo-s", {"algo": "starpo-s", "advantage": "gae", "beta": 0.0, "filter_ratio": 0.25, "epsilon_high": 0.28}),
        ("ragen2", {"filter_strategy": "top_p", "filter_ratio": 0.9, "max_actions_per_turn": 2, "eval_episodes": 512}),
        ("gigpo-webshop", {"env": "ragen/WebShop-v0", "advantage": "gigpo", "num_generations": 8, "max_turns": 15}),
        ("a-star-po-paper", {"algo": "a-star-po", "beta1": 0.5, "beta2": 1e-3, "reference_samples": 8}),
        ("report-1", {"env": "ragen/WebShop-v0", "algo": "a-star-po", "beta1": 0.3, "kl_coef": 0.03}),
        ("report-2", {"env": "ragen/ToyShop-v0", "algo": "a-star-po", "beta1": 1 / 6, "consistency_weight": 0.4}),
    ],
)
def test_what_the_presets_are_known_for(name: str, expected: dict[str, Any]) -> None:
    found = read("--preset", name, "--think", "true")
    assert {option: found[option] for option in expected} == expected


@pytest.mark.parametrize(("name", "updates"), [("ragen", 4), ("starpo-s", 1), ("ragen2", 4), ("gigpo-webshop", 2)])
def test_a_rollout_has_128_trajectories_and_its_published_number_of_updates(name: str, updates: int) -> None:
    found = read("--preset", name)
    micro_batches = found["steps_per_generation"]
    assert micro_batches * found["per_device_train_batch_size"] == 128
    assert micro_batches / found["gradient_accumulation_steps"] == updates


def test_a_config_file_wins_over_a_preset_and_the_command_line_over_both() -> None:
    assert read("--preset", "ragen")["learning_rate"] == 1e-6
    given = {"preset": "ragen", "learning_rate": 2e-6, "max_turns": 4}
    assert [read(**given)[name] for name in ("learning_rate", "max_turns", "max_actions")] == [2e-6, 4, 10]
    found = read("--learning_rate", "3e-6", "--preset", "starpo-s", **given)
    assert [found[name] for name in ("preset", "learning_rate", "max_turns")] == ["starpo-s", 3e-6, 4]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_may_be_copied_and_passed_as_a_config_file(name: str) -> None:
    path = Path(recipes.__file__).parents[1] / "recipes" / f"{name}.yaml"
    by_file, by_name = read(**read_options(path)), read("--preset", name)
    differ = {key for key in by_name if by_file[key] != by_name[key]}
    assert differ <= {"preset", "logging_dir", "distributed_state"}
