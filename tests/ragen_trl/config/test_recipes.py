"""What the commands take for granted about the embedded model and its descendants."""

import json
from pathlib import Path

import pytest

from ragen_trl.cli.options import parse
from ragen_trl.config.commands import RunArguments
from ragen_trl.config.recipes import defaults, is_embedded, warm_start_defaults
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.tiny_model import save_tiny_model

LAKE = "ragen/FrozenLake-v0"
ANOTHER = "Qwen/Qwen2.5-0.5B-Instruct"


def test_a_saved_embedded_model_keeps_its_recipe_and_no_other_model_gets_it(tmp_path: Path) -> None:
    """A warm-started folder was once trained with the options of a model 5000 times as large, and learnt nothing."""
    own = str(save_tiny_model(tmp_path / "own"))
    assert is_embedded(None) and is_embedded(own)
    assert defaults(LAKE, own) == defaults(LAKE, None)
    assert defaults(LAKE, own, "starpo", "gae")["critic_learning_rate"] == 1e-3
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for model in (str(other), ANOTHER, str(tmp_path / "nothing")):
        assert not is_embedded(model)
        assert "learning_rate" not in defaults(LAKE, model)


def test_a_pretrained_model_has_one_warm_start_for_all_games() -> None:
    assert warm_start_defaults("ragen/ToyShop-v0", None)["noise"] == 0.4
    assert warm_start_defaults("ragen/Bandit-v0", None)["demonstrations"] == 4000
    assert warm_start_defaults(LAKE, None) == {}
    assert warm_start_defaults(LAKE, ANOTHER) == warm_start_defaults("ragen/Bandit-v0", ANOTHER)
    assert WarmStartConfig(**warm_start_defaults(LAKE, ANOTHER)).demo_held_out == 0.05


def test_webshop_is_trained_with_credit_on_the_way() -> None:
    """Its success stays the task's own: the environment says so, whatever the reward is."""
    assert defaults("ragen/WebShop-v0", None)["env_kwargs"] == {"reward": "tiered"}


def test_another_model_gets_ragens_environment_as_it_is(tmp_path: Path) -> None:
    """A pretrained model once trained on the tiny model's lake, which does not slip, in 3 turns of 2 moves."""
    small = defaults(LAKE, None)
    assert (small["env_kwargs"], small["max_turns"]) == ({"is_slippery": False, "frozen_prob": 0.9}, 3)
    limits = ("env_kwargs", "max_turns", "max_actions_per_turn", "max_actions")
    for env in (LAKE, "ragen/Sokoban-v0", "ragen/SokobanLarge-v0"):  # RAGEN's 5, 5 and 10 are the fields' defaults
        assert not set(limits) & set(defaults(env, ANOTHER))
    one_shot = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
    wanted = {
        **dict.fromkeys(("ragen/Bandit-v0", "ragen/BanditRev-v0", "ragen/Countdown-v0"), one_shot),
        "ragen/WebShop-v0": {"max_turns": 9, "max_actions_per_turn": 1, "max_actions": 9},
        "ragen/TextWorld-v0": {"max_turns": 20, "max_actions_per_turn": 1, "max_actions": 20},
        "ragen/ToyShop-v0": {"max_turns": 5, "max_actions_per_turn": 1, "max_actions": 5},
    }
    for env, expected in wanted.items():
        found = defaults(env, ANOTHER)
        assert {name: found[name] for name in limits if name in found} == expected, env


def test_an_adapter_of_the_embedded_model_is_one_of_its_descendants(tmp_path: Path) -> None:
    own, adapter = save_tiny_model(tmp_path / "own"), tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(own)}))
    assert is_embedded(str(adapter))
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": ANOTHER}))
    assert not is_embedded(str(adapter))


DIVIDED = (
    "per_device_train_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "max_steps",
    "save_steps",
)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--algo starpo --advantage gae", (32, 4, 1, 1200, 200)),
        ("--algo starpo --advantage turn_gae --max_steps 8", (32, 4, 1, 8, 200)),
        ("--algo starpo --advantage gae --save_steps 4", (32, 4, 1, 1200, 4)),
        ("--algo starpo --advantage gae --filter_ratio 1.0", (32, 4, 1, 1200, 200)),
        ("--algo starpo --advantage gae --filter_ratio 0.5", (128, 1, 1, 300, 50)),
        ("--algo starpo --advantage gae --per-device-train-batch-size 64", (64, 1, 1, 300, 200)),
        ("--algo starpo --advantage gae --gradient_accumulation_steps 2", (128, 2, 2, 300, 200)),
        ("--algo starpo-s --advantage gae", (128, 1, 1, 300, 50)),
        ("--algo starpo", (128, 1, 1, 300, 50)),
        ("--preset ragen", (4, 32, 8, 800, 200)),
    ],
)
def test_the_embedded_models_critic_makes_four_updates_on_a_rollout(argv: str, expected: tuple[int, ...]) -> None:
    """Regression: its recipe set a batch of 128 and one micro-batch, so that the default of four had no effect."""
    options = ["--use_cpu", "true", "--bf16", "false", *argv.split()]
    (_, _, args), _ = parse("train", {}, options, RunArguments, WarmStartConfig)
    assert tuple(getattr(args, name) for name in DIVIDED) == expected
