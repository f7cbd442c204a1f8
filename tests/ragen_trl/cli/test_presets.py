"""Published settings by name: what they set, what wins over them, what the help says about them."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli.help import help_page
from ragen_trl.cli.main import main
from ragen_trl.cli.options import parse
from ragen_trl.config.commands import RunArguments
from ragen_trl.config.presets import PRESETS, preset_options
from ragen_trl.errors import OptionError
from ragen_trl.imitation.fine_tuning import WarmStartConfig

LAKE = "ragen/FrozenLake-v0"
EMBEDDED, OTHER = [], ["--model", "Qwen/Qwen2.5-0.5B-Instruct"]


def read(*argv: str, **given: Any) -> dict[str, Any]:
    """The options in effect."""
    (run, _, args), _ = parse(
        "train", given, ["--use_cpu", "true", "--bf16", "false", *argv], RunArguments, WarmStartConfig
    )
    return {**vars(args), **vars(run)}


@pytest.mark.parametrize("model", [EMBEDDED, OTHER], ids=["embedded", "other"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_value_of_a_preset_is_in_effect(name: str, model: list[str]) -> None:
    found = read("--preset", name, *model)
    expected = preset_options(name, found["env"])
    if not found["think"] and "consistency_weight" in expected:  # the embedded model has no thoughts
        expected["consistency_weight"] = None
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


@pytest.mark.parametrize("name", ["ragen", "starpo-s", "ragen2"])
def test_the_shop_of_256_prompts_is_evaluated_on_each_once(name: str) -> None:
    """Regression: RAGEN-2's 512 episodes played every prompt of ToyShop twice."""
    found = read("--preset", name, "--env", "ragen/ToyShop-v0")
    assert (found["eval_episodes"], found["eval_env_kwargs"]) == (256, {"split": "eval"})


def test_the_webshop_of_gigpo_says_how_its_reward_differs() -> None:
    """verl-agent pays 10 for a score of 1, else 0; with advantages that no std divides, the scale matters."""
    (values,) = (each for each in PRESETS["gigpo-webshop"].values if "env_kwargs" in each.options)
    assert "pays 10 for a score of 1, else 0" in values.source
    assert "ten times as much" in values.source


def test_a_bonus_for_thoughts_is_refused_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: it was weighed in, added 0 to every reward, and the summary had it among the settings."""
    assert main(["train", "--consistency_weight", "0.4", "--output_dir", str(tmp_path / "run")]) == 2
    assert "consistency_weight is 0.4, but think is False" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert read("--preset", "report-2")["consistency_weight"] is None
    assert read("--preset", "report-2", "--think", "true")["consistency_weight"] == 0.4
    assert read("--preset", "report-2", "--consistency_weight", "0.1")["consistency_weight"] == 0.1  # refused later


def test_learning_rates_are_the_sources_and_not_the_recipes() -> None:
    """The embedded model's recipe has 5e-4."""
    rates = {name: read("--preset", name)["learning_rate"] for name in PRESETS}
    assert rates == {**dict.fromkeys(PRESETS, 1e-6), "report-1": 3e-7, "report-2": 3e-5}


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


def test_a_preset_has_an_environment_of_its_own_or_its_values_for_the_one_that_is_played() -> None:
    """The embedded model's lake does not slip; RAGEN's does, and RAGEN-2's does not."""
    assert read("--preset", "ragen")["env_kwargs"] == {"frozen_prob": 0.8, "is_slippery": True}
    assert read("--preset", "ragen2")["env_kwargs"] == {"frozen_prob": 0.9, "is_slippery": False, "coordinates": True}
    assert read("--preset", "ragen", "--env", "ragen/Bandit-v0")["max_turns"] == 1
    assert read("--preset", "gigpo-webshop", "--env", LAKE)["env"] == LAKE


def test_the_grpo_form_of_a_preset_leaves_out_what_only_a_critic_reads() -> None:
    assert read("--preset", "starpo-s", "--advantage", "group")["bootstrap"] == "unseen"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--preset", "ragen3"], ["preset is 'ragen3'", "ragen, starpo-s, ragen2, gigpo-webshop, a-star-po-paper"]),
        (["--preset", "report-1", "--algo", "starpo"], ["preset 'report-1' is for 'a-star-po'", "leave one out"]),
    ],
)
def test_a_mistake_is_named_with_what_there_is(argv: list[str], words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        read(*argv)
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_help_lists_every_preset_with_its_sources() -> None:
    page = " ".join(help_page("train").split())
    for name, preset in PRESETS.items():
        assert f"{name}: {preset.about}" in page
        options = preset_options(name)
        assert all(f" {option} " in page for option in options)
        assert all(values.source in page for values in preset.values)
    assert "presets" not in help_page("eval")
